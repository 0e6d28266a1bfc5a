"""Fluid: sums over many overlapping spans as functions of time, on an even grid."""

from __future__ import annotations

from typing import Final

import numpy as np

from mileage.ledger.columns import Floats, sums

__all__ = ["Fluid"]

_SLOTS_MIN: Final = 2


class Fluid:
    """Time from `begin_s` to `end_s` in slots of equal width; a function is its mean in each slot.

    What begins or ends within a slot counts for its part of the slot, so integrals are exact.
    All costs are in proportion to spans plus slots.
    """

    def __init__(self, begin_s: float, end_s: float, slot_s: float) -> None:
        self.count = max(_SLOTS_MIN, int(np.ceil((end_s - begin_s) / slot_s)))
        self.begin_s, self.slot_s = begin_s, (end_s - begin_s) / self.count

    def steps(self, at_s: Floats, by: Floats) -> Floats:
        """A function that is 0 at first and changes by so much at each time."""
        place = np.clip((at_s - self.begin_s) / self.slot_s, 0.0, float(self.count))
        slot = np.minimum(place.astype(np.int64), self.count - 1)
        late = place - slot
        changes = sums(by * (1.0 - late), slot, self.count + 1)
        changes += sums(by * late, slot + 1, self.count + 1)
        level: Floats = np.cumsum(changes)[: self.count]
        return level

    def levels(self, begin_s: Floats, end_s: Floats, heights: Floats) -> Floats:
        """The sum of spans of these heights."""
        return self.steps(np.concatenate((begin_s, end_s)), np.concatenate((heights, -heights)))

    def integral(self, function: Floats) -> Floats:
        """From the begin to each edge of a slot: one more than there are slots."""
        total: Floats = np.concatenate(([0.0], np.cumsum(function))) * self.slot_s
        return total

    def at(self, integral: Floats, at_s: Floats) -> Floats:
        """An integral at any times; constant outside."""
        place = np.clip((at_s - self.begin_s) / self.slot_s, 0.0, float(self.count))
        slot = np.minimum(place.astype(np.int64), self.count - 1)
        value: Floats = integral[slot] + (place - slot) * (integral[slot + 1] - integral[slot])
        return value

    def between(self, integral: Floats, begin_s: Floats, end_s: Floats) -> Floats:
        """What an integral gains over each of the spans."""
        gained: Floats = self.at(integral, end_s) - self.at(integral, begin_s)
        return gained
