"""What the keeper is told on its standard input: one line of JSON."""

from __future__ import annotations

import msgspec

__all__ = ["AtEnd", "KeeperParams"]


class AtEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What is done when engines are gone: a command with its input, and directories removed."""

    command: tuple[str, ...] = ()
    text: str = ""
    environment: dict[str, str] = {}
    remove: tuple[str, ...] = ()
    share: int | None = None
    """Descriptor of an `MpsShare`: all of it is done only by the last one that has a share."""


class KeeperParams(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's command; `environment` is added to the keeper's own.

    Without a command there is no engine: `at_end` is done when standard input closes.
    """

    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    at_end: AtEnd = AtEnd()
