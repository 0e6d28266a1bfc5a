"""Lines of an engine's log, for `mileage doctor --log`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mileage.core.errors import ConfigError

__all__ = ["log_lines"]

_HEAD_LINES: Final = 20_000
_TAIL_LINES: Final = 20_000
"""The start of an engine is at the beginning, what it does now at the end; in between there may be
gigabytes."""
_LINE_MAX: Final = 16 * 1024
_BYTES_MAX: Final = 1024 * 1024 * 1024


def log_lines(path: Path) -> list[str]:
    """The first and the last lines of the file, without control characters.

    Raises:
        ConfigError: it cannot be read, or is larger than 1 GiB.
    """
    head: list[str] = []
    tail: list[str] = []
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ConfigError("--log", str(path), f"at most {_BYTES_MAX >> 30} GiB")
        with path.open("r", encoding="utf-8", errors="replace") as file:
            while line := file.readline(_LINE_MAX):
                kept = "".join(c for c in line if c.isprintable() or c == "\t")
                if not kept:
                    continue
                if len(head) < _HEAD_LINES:
                    head.append(kept)
                    continue
                tail.append(kept)
                if len(tail) >= 2 * _TAIL_LINES:
                    del tail[:_TAIL_LINES]
    except OSError as error:
        raise ConfigError("--log", str(path), f"a file ({error.strerror})") from None
    return head + tail[-_TAIL_LINES:]
