"""The KL of each slot in every format, from a few that were measured and the formats' effects.

Small errors cost KL of second order in them, so that in one slot the KL of a format is its effect
on attention times a factor of the slot, which measurements find. One measurement of a slot is
noisy: the few tokens that it hurts most carry its mean. A factor from all of a slot's measurements
is less so, and a format is not chosen for its luck on the calibration text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from mileage.quant.allocate import Option
from mileage.quant.effects import SlotEffect
from mileage.quant.formats import KvFormat, Slot
from mileage.quant.sweep import SlotKl

__all__ = ["Family", "Table", "estimated", "family_of", "table"]

Family = Literal["token", "channel"]
"""Whether errors of a format share scales along a token or along a channel: their directions, and
so what they cost downstream, differ."""

Table = Mapping[Slot, Mapping[str, float]]
"""Estimated KL of each slot alone, nats, by the format's name."""


def family_of(kv_format: KvFormat) -> Family:
    """The family that the format's measurements speak for."""
    return "channel" if kv_format.scope in ("channel", "head", "tensor") else "token"


def estimated(effects: Sequence[SlotEffect], measured: Sequence[SlotKl]) -> Table:
    """The KL of each slot in each of its formats.

    A family without a measurement in a slot takes the factor of the slot's others. Raises
    ValueError for a slot without measurements of a format that has an effect.
    """
    known = {(each.slot, each.format.name): each.effect for each in effects}
    logs: dict[tuple[Slot, Family], list[float]] = {}
    for one in measured:
        effect = known.get((one.slot, one.format.name))
        if effect and one.mean > 0.0:
            logs.setdefault((one.slot, family_of(one.format)), []).append(
                float(np.log(one.mean / effect))
            )
    found: dict[Slot, dict[str, float]] = {}
    for each in effects:
        own = logs.get((each.slot, family_of(each.format))) or [
            log for (slot, _), some in logs.items() if slot == each.slot for log in some
        ]
        if not own:
            raise ValueError(f"nothing was measured of {each.slot}")
        factor = float(np.exp(np.mean(own)))
        found.setdefault(each.slot, {})[each.format.name] = factor * each.effect
    return found


def table(
    kl: Table, formats: Mapping[str, KvFormat], *, head_dim: int, kv_heads: int
) -> tuple[tuple[Slot, ...], tuple[tuple[Option, ...], ...]]:
    """The slots, and what the allocation may choose for each."""
    width = head_dim * kv_heads
    return tuple(kl), tuple(
        tuple(
            # Scales that several tokens share can be parts of a bit; never count too few.
            Option(name=name, bits=-int(-formats[name].bits_per_value(head_dim) * width // 1), kl=x)
            for name, x in own.items()
        )
        for own in kl.values()
    )
