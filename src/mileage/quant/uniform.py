"""One format for all keys and one for all values: what a mix has to be better than."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mileage.quant.estimate import Table
from mileage.quant.formats import KvFormat, Slot
from mileage.quant.measured import Mix

__all__ = ["Pair", "pairs_within", "uniform_mix"]


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A format of keys and one of values."""

    k: str
    v: str
    bits_per_value: float
    kl: float
    """Sum of the slots' own."""


def pairs_within(
    kl: Table, formats: Mapping[str, KvFormat], *, head_dim: int, bits_max: float
) -> tuple[Pair, ...]:
    """All pairs of at most so many bits per value, the least KL first.

    Of formats that each slot of their side has.
    """
    sums: dict[str, dict[str, float]] = {"k": {}, "v": {}}
    for side, own in sums.items():
        tables = [names for slot, names in kl.items() if slot.side == side]
        for name in tables[0] if tables else ():
            if all(name in names for names in tables):
                own[name] = sum(names[name] for names in tables)
    bits = {name: each.bits_per_value(head_dim) for name, each in formats.items()}
    found = [
        Pair(k=k, v=v, bits_per_value=(bits[k] + bits[v]) / 2.0, kl=k_sum + v_sum)
        for k, k_sum in sums["k"].items()
        for v, v_sum in sums["v"].items()
    ]
    within = [pair for pair in found if pair.bits_per_value <= bits_max]
    return tuple(sorted(within, key=lambda pair: (pair.kl, pair.bits_per_value, pair.k, pair.v)))


def uniform_mix(slots: Sequence[Slot], k: KvFormat, v: KvFormat) -> Mix:
    """The pair as a mix."""
    return {slot: k if slot.side == "k" else v for slot in slots}
