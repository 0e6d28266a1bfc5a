"""ArmSlot and Metric: what one arm of an A/B run did in one block, and what of it is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Literal

import msgspec

from mileage.core.slo import Slo
from mileage.measure.call_record import CallRecord
from mileage.measure.run_figures import RunFigures, run_figures

__all__ = ["DECIDING", "METRICS", "ArmSlot", "Metric", "SlotFigures", "slot_figures"]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a slot that is compared between the arms."""

    name: str
    better: Literal["lower", "higher"] | None
    """None: neither is; it is told and not judged."""
    figure: str | None = None
    """Where it stands in RunFigures, such as `ttft_s.p99`; None: in the slot's `extra`."""

    def of(self, slot: SlotFigures) -> float | None:
        """Its value in this slot; None where it was not seen."""
        if self.figure is None:
            return slot.extra.get(self.name)
        value: object = _reader(self.figure)(slot.figures)
        return float(value) if isinstance(value, int | float) else None


@cache
def _reader(figure: str) -> Callable[[RunFigures], object]:
    """Reads the figure: kept, for each look at a run reads each of them of all slots so far."""
    return attrgetter(figure)


def _latencies() -> tuple[Metric, ...]:
    parts = (("ttft", "ttft_s"), ("itl", "itl_s"), ("tpot", "tpot_s"), ("e2e", "e2e_s"))
    return tuple(
        Metric(name=f"{short}_{at}_s", better="lower", figure=f"{figure}.{at}")
        for short, figure in parts
        for at in ("mean", "p50", "p90", "p99", "p999")
    )


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *_latencies(),
        Metric(name="output_tokens_per_s", better="higher", figure="output_tokens_per_s"),
        Metric(name="requests_per_s", better="higher", figure="requests_per_s"),
        Metric(name="goodput_rps", better="higher", figure="goodput_rps"),
        Metric(name="slo_attainment_ratio", better="higher", figure="slo_attainment_ratio"),
        Metric(name="failed_ratio", better="lower"),
        Metric(name="cached_tokens_ratio", better=None, figure="cached_tokens_ratio"),
        Metric(name="utilisation_ratio", better=None),
        Metric(name="memory_bytes", better="lower"),
        Metric(name="energy_j_per_token", better="lower"),
        Metric(name="usd_per_million_tokens", better="lower"),
    )
}
"""Metrics by name. Those without a figure come with the slot, in its `extra`."""

DECIDING = ("e2e_p50_s", "ttft_p99_s", "itl_p99_s", "output_tokens_per_s")
"""Metrics that decide the verdict where nothing else is asked for."""


class ArmSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in one block: a slot of its own beside the other arm's, or its share of a split."""

    block: int
    arm: Literal["a", "b"]
    order: Literal[0, 1] | None
    """Interleaved: 0 for the slot of the block that came first. None: both ran at the same time."""
    start_s: float
    """The measured window, without the time after a change that is let pass."""
    end_s: float
    records: Sequence[CallRecord]
    """The slot's requests, of this arm only."""
    extra: dict[str, float | None] = {}
    """Figures by metric name that records do not hold, such as `memory_bytes`."""


class SlotFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a slot."""

    block: int
    arm: Literal["a", "b"]
    order: Literal[0, 1] | None
    figures: RunFigures
    extra: dict[str, float | None] = {}
    prompt_tokens_mean: float | None = None
    """Mean of the prompt tokens that the workload asked for."""


def slot_figures(slot: ArmSlot, slo: Slo) -> SlotFigures:
    """The figures of one slot. Raises ValueError for a slot that has no length."""
    figures = run_figures(slot.records, start_s=slot.start_s, end_s=slot.end_s, slo=slo)
    planned = [
        r.planned_prompt_tokens
        for r in slot.records
        if r.planned_prompt_tokens is not None and slot.start_s <= r.scheduled_s < slot.end_s
    ]
    return SlotFigures(
        block=slot.block,
        arm=slot.arm,
        order=slot.order,
        figures=figures,
        extra=slot.extra,
        prompt_tokens_mean=sum(planned) / len(planned) if planned else None,
    )
