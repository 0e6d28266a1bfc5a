"""Log lines that are searched by many patterns: only lines that may match are looked at by one.

A pattern that ignores case tries each place of each line. Nearly all patterns need some plain text
in a line ("preempted", "nvcc"), and finding that in all lines at once takes a hundredth of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

__all__ = ["LogText", "needed_texts"]

ALIKE_MAX: Final = 8
"""Of lines that differ in numbers alone: workers of one machine write each line once."""
LITERAL_MIN: Final = 3
"""Characters of a plain text that are worth looking for."""

_NUMBERS = re.compile(r"[0-9.:]+")
_QUANTIFIED: Final = "?*{"
_CODES: Final = (r"\x", r"\u", r"\U", r"\N")
"""Characters written by number or name: not read here."""
_PLAIN_ESCAPES: Final = ".()[]{}|*+?^$/\\-:'\"= "


class LogText:
    """The lines, with one text of them all to look for plain texts in."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._folded: str | None = None
        self._starts: list[int] = []
        self._unlike: frozenset[int] | None = None

    def matches(
        self, pattern: re.Pattern[str], *, last_first: bool = False
    ) -> Iterator[re.Match[str]]:
        """The first match in each line that has one, by line."""
        for number in self._candidates(pattern, last_first=last_first):
            found = pattern.search(self.lines[number])
            if found is not None:
                yield found

    def first_unlike(self, pattern: re.Pattern[str]) -> str | None:
        """The first line that matches, of lines that differ in numbers alone the first few.

        An engine writes the same line of statistics each few seconds, for days.
        """
        unlike = self._unlike_lines()
        for number in self._candidates(pattern):
            if number in unlike and pattern.search(self.lines[number]):
                return self.lines[number]
        return None

    def _candidates(self, pattern: re.Pattern[str], *, last_first: bool = False) -> Iterable[int]:
        needed = None if pattern.flags & re.VERBOSE else needed_texts(pattern.pattern)
        if needed is None:
            numbers: Iterable[int] = range(len(self.lines))
        else:
            numbers = sorted({number for text in needed for number in self._with(text)})
        return reversed(list(numbers)) if last_first else numbers

    def _with(self, text: str) -> Iterator[int]:
        """Lines that hold the text, whatever the case."""
        if self._folded is None:
            folded = [line.casefold().replace("\n", " ") for line in self.lines]
            self._starts = list(accumulate((len(line) + 1 for line in folded), initial=0))
            self._folded = "\n".join(folded)
        place = self._folded.find(text)
        while place >= 0:
            number = bisect_right(self._starts, place) - 1
            yield number
            place = self._folded.find(text, self._starts[number + 1])

    def _unlike_lines(self) -> frozenset[int]:
        if self._unlike is None:
            counts: Counter[str] = Counter()
            kept: set[int] = set()
            for number, line in enumerate(self.lines):
                shape = _NUMBERS.sub("", line)
                counts[shape] += 1
                if counts[shape] <= ALIKE_MAX:
                    kept.add(number)
            self._unlike = frozenset(kept)
        return self._unlike


@lru_cache(maxsize=1024)
def needed_texts(pattern: str) -> tuple[str, ...] | None:
    """Plain texts, in folded case, one of which is in every text that the pattern matches.

    None where that is not seen: for an alternative without a plain text of some length.
    """
    if any(code in pattern for code in _CODES):
        return None
    needed: list[str] = []
    for branch in _branches(pattern):
        longest = max(_plain_runs(branch), key=len, default="").casefold()
        if len(longest) < LITERAL_MIN:
            return None
        needed.append(longest)
    return tuple(dict.fromkeys(needed))


def _branches(pattern: str) -> list[str]:
    """The alternatives of a pattern, those within brackets apart."""
    found, depth, start = [], 0, 0
    for place, character, in_class in _pieces(pattern):
        if in_class or len(character) > 1:
            continue
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            found.append(pattern[start:place])
            start = place + 1
    return [*found, pattern[start:]]


def _plain_runs(branch: str) -> Iterator[str]:
    """Runs of plain characters outside of brackets, each of which must be there once."""
    run, depth, counted = "", 0, False
    for _, piece, in_class in _pieces(branch):
        if counted:  # within {2,3}
            counted = piece != "}"
            continue
        if not in_class and piece in _QUANTIFIED and depth == 0:
            yield run[:-1]
            run, counted = "", piece == "{"
            continue
        plain = _plain(piece) if not in_class and depth == 0 else None
        if plain is None:
            yield run
            run = ""
            depth += 0 if in_class else (piece == "(") - (piece == ")")
        else:
            run += plain
    yield run


def _plain(piece: str) -> str | None:
    if len(piece) == 2:
        return piece[1] if piece[1] in _PLAIN_ESCAPES else None
    return None if piece in ".^$()[]{}|*+?\n" else piece


def _pieces(pattern: str) -> Iterator[tuple[int, str, bool]]:
    """Place, character or escape, and whether it stands in a character class."""
    place, in_class = 0, False
    while place < len(pattern):
        piece = pattern[place : place + 2] if pattern[place] == "\\" else pattern[place]
        if piece == "[" and not in_class:
            in_class = True
            yield place, piece, True
            place += 1
            while place < len(pattern) and pattern[place] in "^]":  # a bracket that stands first
                yield place, pattern[place], True
                place += 1
            continue
        yield place, piece, in_class
        if piece == "]" and in_class:
            in_class = False
        place += len(piece)
