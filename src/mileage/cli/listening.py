"""Listening: where a running gateway is to be found."""

from __future__ import annotations

import msgspec

__all__ = ["Listening"]


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses and processes of a running gateway; nothing here is secret.

    `admin_token_file` holds the admin token; None where the configuration does, or without an
    admin plane. `ledger`: its directory; None where none is kept.
    """

    url: str
    admin_url: str | None
    admin_token_file: str | None
    ledger: str | None
    models: list[str]
    pid: int
    worker_pids: list[int]
    engine_pids: list[int]
