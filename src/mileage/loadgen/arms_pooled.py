"""An arm of an A/B run as one run: its slots' windows put one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from mileage.core.slo import Slo
from mileage.loadgen.arms_slot import Slot
from mileage.loadgen.arms_slots import Arm
from mileage.measure.call_record import CallRecord
from mileage.measure.run_figures import RunFigures, run_figures

__all__ = ["pooled_figures", "pooled_records"]

_MOMENTS: Final = ("taken_s", "connected_s", "sent_s", "answered_s", "ended_s")
_RATES: Final = ("requests_per_s", "goodput_rps", "output_tokens_per_s", "prompt_tokens_per_s")


def pooled_records(slots: Sequence[Slot], arm: Arm) -> tuple[list[CallRecord], float]:
    """An arm's measured requests, as if its windows had followed each other, and the seconds that
    these take together. Requests of the wash-outs are left out."""
    records: list[CallRecord] = []
    at_s = 0.0
    for slot in slots:
        load = slot.load
        if slot.arm != arm or load.end_s <= load.start_s:
            continue
        records += [
            _moved(record, at_s - load.start_s)
            for record in load.records
            if record.phase == "measured" and load.start_s <= record.scheduled_s < load.end_s
        ]
        at_s += load.end_s - load.start_s
    return records, at_s


def pooled_figures(slots: Sequence[Slot], arm: Arm, slo: Slo) -> RunFigures | None:
    """Figures of an arm: latencies over all its requests, rates as means over its windows.

    None where it has no window.
    """
    records, window_s = pooled_records(slots, arm)
    if not window_s:
        return None
    whole = run_figures(records, start_s=0.0, end_s=window_s, slo=slo)
    windows = [
        run_figures(s.load.records, start_s=s.load.start_s, end_s=s.load.end_s, slo=slo)
        for s in slots
        if s.arm == arm and s.load.end_s > s.load.start_s
    ]
    return replace(whole, **{name: _rate(windows, name) for name in _RATES})


def _rate(windows: Sequence[RunFigures], name: str) -> float | None:
    total = seconds = 0.0
    for window in windows:
        value: float | None = getattr(window, name)
        if value is None:
            return None
        total += value * window.window_s
        seconds += window.window_s
    return total / seconds


def _moved(record: CallRecord, by_s: float) -> CallRecord:
    moved: dict[str, Any] = {
        name: value + by_s for name in _MOMENTS if (value := getattr(record, name)) is not None
    }
    times = record.token_times_s[:0]
    times.extend(moment + by_s for moment in record.token_times_s)
    scheduled_s = max(0.0, record.scheduled_s + by_s)
    return replace(record, scheduled_s=scheduled_s, token_times_s=times, **moved)
