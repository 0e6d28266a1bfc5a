"""Listening: where a running gateway is to be found."""

from __future__ import annotations

import msgspec

__all__ = ["Listening", "shown_url"]


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


def shown_url(host: str, port: int, *, tls: bool) -> str:
    """Where clients find the API of a gateway that listens at `host`."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- shown only
    shown = f"[{shown}]" if ":" in shown else shown
    return f"{'https' if tls else 'http'}://{shown}:{port}/v1"
