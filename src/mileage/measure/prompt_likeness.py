"""PromptLikeness: how much of their prompts requests have in common, and where they first differ.

A prefix cache saves what a prompt shares with an earlier one up to the first difference. A time or
an id near the head of an otherwise fixed prompt makes all behind it new. This tells both, from
hashes of words alone: no text is kept, and hashes are salted by the interpreter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Final, NamedTuple

import msgspec

__all__ = ["Likeness", "PromptLikeness", "merged_likeness"]

KEPT: Final = 32
"""Earlier prompts that a new one is compared with: templates that take turns."""
COMPARED: Final = 256
"""Latest comparisons that the figures are of."""
WORDS_MAX: Final = 8_192
WORDS_MIN: Final = 24
"""A shorter prompt has nothing that is worth keeping: a few blocks at most."""
ALIKE_RATIO: Final = 0.5
"""Share of pieces in common from which two prompts are of one template."""
BYTES_PER_TOKEN: Final = 4.0
"""Of English text; where the head is short the error is of no weight."""
PIECE_MASK: Final = 7
"""A piece ends at a word whose hash has these bits unset: every 8th on average. Ends depend on the
words alone, so that a longer time stamp does not shift all pieces behind it."""
FACTOR: Final = 1_000_003
MASK: Final = (1 << 64) - 1
"""A piece's number is made of its words' numbers in their order, in 64 bits."""


class _Print(NamedTuple):
    words: tuple[int, ...]
    pieces: frozenset[int]


class _Comparison(NamedTuple):
    tokens: float
    alike: bool
    head_tokens: float
    differs: bool
    """Not one of them goes on where the other ends."""
    same_behind_ratio: float


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """Of the latest prompts. Tokens are estimated from bytes; None: nothing to tell it from."""

    prompts: int
    """That were compared with an earlier one."""
    alike_ratio: float
    """Share that is of the template of an earlier one."""
    head_tokens: float | None = None
    """Median length of what is shared with the prompt most alike, from the first word on; 0 where
    most are like no other."""
    head_ratio: float | None = None
    """Mean share of the prompt that this is."""
    first_diff_token: float | None = None
    """Median place of the first difference, of prompts of one template that differ."""
    same_behind_ratio: float | None = None
    """Mean share of what follows the first difference that the other has too."""
    continued_ratio: float | None = None
    """Share that goes on where an earlier prompt ends: turns of a conversation."""


class PromptLikeness:
    """Takes prompts one by one; `summary` tells of the latest.

    `hash_of` gives words numbers that tell them apart, such as the interpreter's own `hash`.
    """

    def __init__(self, hash_of: Callable[[str], int]) -> None:
        self._hash_of = hash_of
        self._kept: deque[_Print] = deque(maxlen=KEPT)
        self._compared: deque[_Comparison] = deque(maxlen=COMPARED)

    def look(self, prompt: str) -> None:
        """Compare a prompt with those before it. Short ones are left out."""
        texts = prompt.split(maxsplit=WORDS_MAX)[:WORDS_MAX]
        if len(texts) < WORDS_MIN:
            return
        new = _print(tuple(map(self._hash_of, texts)))
        if self._kept:
            best = max(self._kept, key=lambda kept: len(kept.pieces & new.pieces))
            self._compared.append(_compare(new, best, texts))
        self._kept.append(new)

    def summary(self) -> Likeness | None:
        """Of the latest prompts; None where none was compared yet."""
        seen = list(self._compared)
        if not seen:
            return None
        alike = [one for one in seen if one.alike]
        differing = [one for one in alike if one.differs]
        heads = [one.head_tokens if one.alike else 0.0 for one in seen]
        return Likeness(
            prompts=len(seen),
            alike_ratio=len(alike) / len(seen),
            head_tokens=median(heads),
            head_ratio=fmean(h / one.tokens for h, one in zip(heads, seen, strict=True)),
            first_diff_token=median(one.head_tokens for one in differing) if differing else None,
            same_behind_ratio=(
                fmean(one.same_behind_ratio for one in differing) if differing else None
            ),
            continued_ratio=1 - len(differing) / len(alike) if alike else None,
        )


def merged_likeness(parts: Sequence[Likeness]) -> Likeness | None:
    """That of several workers as one: the mean of each figure, weighted by prompts."""
    if not parts:
        return None
    whole = sum(part.prompts for part in parts)

    def mean(name: str) -> float | None:
        known = [(getattr(part, name), part.prompts) for part in parts]
        told = [(value, weight) for value, weight in known if value is not None]
        weights = sum(weight for _, weight in told)
        return sum(value * weight for value, weight in told) / weights if weights else None

    names = ("head_tokens", "head_ratio", "first_diff_token", "same_behind_ratio")
    return Likeness(
        prompts=whole,
        alike_ratio=mean("alike_ratio") or 0.0,
        continued_ratio=mean("continued_ratio"),
        **{name: mean(name) for name in names},
    )


def _print(words: tuple[int, ...]) -> _Print:
    pieces: set[int] = set()
    piece = 0
    for word in words:
        piece = (piece * FACTOR + word) & MASK
        if not word & PIECE_MASK:
            pieces.add(piece)
            piece = 0
    if piece:
        pieces.add(piece)
    return _Print(words, frozenset(pieces))


def _compare(new: _Print, old: _Print, texts: Sequence[str]) -> _Comparison:
    shortest = min(len(new.words), len(old.words))
    head = next((n for n in range(shortest) if new.words[n] != old.words[n]), shortest)
    common = len(new.pieces & old.pieces)
    least = min(len(new.pieces), len(old.pieces))
    # A prompt of few pieces may have its difference in one that is half of it.
    alike = common >= ALIKE_RATIO * least or head >= ALIKE_RATIO * shortest
    behind = _print(new.words[head + 1 :]).pieces
    return _Comparison(
        tokens=_tokens(texts),
        alike=alike,
        head_tokens=_tokens(texts[:head]),
        differs=head < shortest,
        same_behind_ratio=len(behind & old.pieces) / len(behind) if behind else 0.0,
    )


def _tokens(texts: Sequence[str]) -> float:
    return (sum(map(len, texts)) + len(texts)) / BYTES_PER_TOKEN
