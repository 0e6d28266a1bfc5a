"""The best mix of formats for so many bits, or within so much KL: an exact knapsack over slots."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.measure.record_latency import Counts, Floats

__all__ = ["Choice", "Frontier", "Option", "allocate", "frontier"]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A format that a slot may have."""

    name: str
    bits: int
    """Of all the slot's numbers of one token, scales and zero points with them."""

    kl: float
    """Nats per token where this slot alone has the format; not below 0."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One option for each slot, in the slots' order."""

    options: tuple[Option, ...]
    bits: int
    kl: float
    """Sum of the slots' own."""


class _Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Where the frontier's points come from: the point before this slot and the slot's option."""

    before: NDArray[np.int64]
    option: NDArray[np.int64]


class Frontier:
    """All choices that no other beats in bits and KL at once, from the fewest bits on."""

    def __init__(
        self,
        slots: Sequence[Sequence[Option]],
        bits: Counts,
        kl: Floats,
        stages: Sequence[_Stage],
    ) -> None:
        self._slots, self._stages = slots, stages
        self.bits, self.kl = bits, kl

    def within_bits(self, bits_max: float) -> Choice | None:
        """The least KL that so many bits allow; None where they are too few for any choice."""
        count = int(np.searchsorted(self.bits, bits_max, side="right"))
        return self.choice(count - 1) if count else None

    def within_kl(self, kl_max: float) -> Choice | None:
        """The fewest bits whose sum of KLs is at most that; None where no choice meets it."""
        enough = np.flatnonzero(self.kl <= kl_max)
        return self.choice(int(enough[0])) if len(enough) else None

    def choice(self, point: int) -> Choice:
        """The options behind a point of the frontier."""
        picked, at = [], point
        for slot, stage in zip(reversed(self._slots), reversed(self._stages), strict=True):
            picked.append(slot[stage.option[at]])
            at = int(stage.before[at])
        options = tuple(reversed(picked))
        return Choice(options=options, bits=int(self.bits[point]), kl=float(self.kl[point]))


def frontier(slots: Sequence[Sequence[Option]]) -> Frontier:
    """The non-dominated sums of one option for each slot.

    Nemhauser & Ullmann's dominance (1969, Management Science 15:494): after each slot only sums
    that no other beats are kept, which loses nothing, since what is added later is the same for
    both. Bits are whole numbers, so there are no more points than bits in all. Raises ValueError
    for a slot without options and for KLs that are no number of at least 0.
    """
    bits, kl = np.zeros(1, dtype=np.int64), np.zeros(1)
    stages = []
    for slot in slots:
        own_bits = np.array([option.bits for option in slot], dtype=np.int64)
        own_kl = np.array([option.kl for option in slot])
        if not len(slot) or not (own_kl >= 0.0).all():
            raise ValueError(f"a slot needs options, each of a KL of at least 0: {slot}")
        sums = (bits[None, :] + own_bits[:, None]).ravel()
        costs = (kl[None, :] + own_kl[:, None]).ravel()
        order = np.lexsort((costs, sums))
        least = np.minimum.accumulate(costs[order])
        better = np.concatenate(([True], costs[order][1:] < least[:-1]))
        kept = order[better]
        stages.append(_Stage(before=kept % len(bits), option=kept // len(bits)))
        bits, kl = sums[kept], costs[kept]
    return Frontier(slots, bits, kl, stages)


def allocate(
    slots: Sequence[Sequence[Option]],
    *,
    bits_max: float | None = None,
    kl_max: float | None = None,
) -> Choice | None:
    """The best choice within one of the two; None where nothing is within it.

    Raises ValueError unless exactly one is given.
    """
    if (bits_max is None) == (kl_max is None):
        raise ValueError("give bits_max or kl_max, and not both")
    found = frontier(slots)
    if bits_max is not None:
        return found.within_bits(bits_max)
    assert kl_max is not None
    return found.within_kl(kl_max)
