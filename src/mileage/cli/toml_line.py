"""The line of a TOML text that a key stands on; the library's parser does not tell."""

from __future__ import annotations

import tomllib
from typing import Any

from mileage.cli.config_fault import KeyPath

__all__ = ["line_of"]

_PARSES_MAX = 400
"""A single list of thousands of lines is not worth more: its key is then told without a line."""


def line_of(text: str, path: KeyPath) -> int | None:
    """The line on which the statement begins that brings the key or table; None without it.

    A TOML text that is cut between two statements is a TOML text, and one cut inside a statement
    is none. So the statement is found between the longest such part without the key and the
    shortest with it, by halving: no grammar of our own.
    """
    parts = _Parts(text)
    low, high = 0, len(parts.lines)  # parts without it, and with it
    if not parts.has(high, path):
        return None
    while parts.left > 0:
        middle = (low + high) // 2
        # The whole part that is nearest to the middle, if there is one between the two.
        cut = parts.first_whole(range(max(middle, low + 1), high))
        if cut is None:
            cut = parts.first_whole(range(middle - 1, low, -1))
        if cut is None:
            return low + 1 + parts.silent(low) if parts.left > 0 else None
        if parts.has(cut, path):
            high = cut
        else:
            low = cut
    return None


class _Parts:
    """The first lines of a text, parsed; `left` parses are allowed."""

    def __init__(self, text: str) -> None:
        # Not splitlines: strings may hold what it takes for the end of a line.
        self.lines = [f"{line}\n" for line in text.split("\n")]
        self.left = _PARSES_MAX
        self._trees: dict[int, dict[str, Any]] = {}

    def first_whole(self, counts: range) -> int | None:
        """The first of these numbers of lines that is a TOML text."""
        return next((count for count in counts if self._parse(count)), None)

    def has(self, count: int, path: KeyPath) -> bool:
        """The key is in the first `count` lines."""
        if not self._parse(count):
            return False
        tree: Any = self._trees[count]
        for step in path:
            if isinstance(step, int):
                if not isinstance(tree, list) or step >= len(tree):
                    return False
            elif not isinstance(tree, dict) or step not in tree:
                return False
            tree = tree[step]
        return True

    def silent(self, start: int) -> int:
        """Blank lines and comments from there on, before the next line that says something."""
        count = 0
        while not self.lines[start + count].strip() or self.lines[start + count].lstrip()[0] == "#":
            count += 1
        return count

    def _parse(self, count: int) -> bool:
        if count in self._trees:
            return True
        if self.left <= 0:
            return False
        self.left -= 1
        try:
            self._trees[count] = tomllib.loads("".join(self.lines[:count]))
        except tomllib.TOMLDecodeError:
            return False
        return True
