"""RunMeta: what a saved run was: where, of what, and with what result. It holds no secret."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mileage.wire.url import display_url

__all__ = ["RunMeta", "SavedTarget", "without_secrets"]

_HIDDEN: Final = "..."
_SECRET_OPTIONS: Final = re.compile(r"--[a-z-]*(?:key|token|secret|password|authorization)")
_NO_SECRET: Final = frozenset(
    {"--prompt-tokens", "--output-tokens", "--max-tokens", "--api-key-env", "--api-key-file"}
)
_SECRET_HEADER: Final = re.compile(
    r"((?:--header=)?[^:=\s]*(?:authorization|api-?key|token|cookie|secret)[^:]*:).*",
    re.IGNORECASE | re.DOTALL,
)
_HEADER_OPTIONS: Final = frozenset({"--header", "-H"})
_URL: Final = re.compile(r"https?://\S+", re.IGNORECASE)


class SavedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A server that was under load."""

    name: str
    url: str
    """Without credentials and query."""


class RunMeta(msgspec.Struct, frozen=True, kw_only=True):
    """All of a saved run but its records. Times are as those of CallRecord, unless they say so."""

    mileage_version: str
    started_at_utc: str
    """ISO 8601."""
    start_s: float
    end_s: float
    """The measured window."""
    elapsed_s: float
    """From the run's beginning to its end."""
    command: tuple[str, ...] = ()
    """The command line, see `without_secrets`."""
    targets: tuple[SavedTarget, ...] = ()
    model: str | None = None
    workload: str | None = None
    """What the trace is called."""
    options: dict[str, Any] = {}
    host: dict[str, Any] = {}
    """Of the load generator, see `host_facts`."""
    engine: dict[str, Any] = {}
    """What was found out about the server: its kind and version, say."""
    generator: dict[str, Any] = {}
    """The generator's own use, and whether it was the limit."""
    figures: dict[str, Any] = {}
    server: dict[str, Any] = {}
    """Utilisation, memory and energy of the server."""
    notes: tuple[str, ...] = ()


def without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line in which no key, token or password stands, nor credentials of a URL."""
    shown: list[str] = []
    before = ""
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        if _is_secret(option) and equals:
            shown.append(f"{option}={_HIDDEN}")
        elif _is_secret(before):
            shown.append(_HIDDEN)
        elif before in _HEADER_OPTIONS or option in _HEADER_OPTIONS:
            shown.append(_SECRET_HEADER.sub(rf"\1 {_HIDDEN}", argument))
        else:
            shown.append(_URL.sub(lambda match: display_url(match[0]), argument))
        before = argument if not equals else ""
    return tuple(shown)


def _is_secret(option: str) -> bool:
    return option not in _NO_SECRET and _SECRET_OPTIONS.fullmatch(option) is not None
