"""The console that tables are shown on: as wide as they need where there is no terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Console

__all__ = ["wide_console"]

_WIDTH_WITHOUT_TERMINAL: Final = 160


def wide_console(*, highlight: bool = False) -> Console:
    """Standard output. Without a terminal nothing is cut off at 80 columns."""
    console = Console(highlight=highlight)
    if console.is_terminal:
        return console
    return Console(width=_WIDTH_WITHOUT_TERMINAL, highlight=highlight)
