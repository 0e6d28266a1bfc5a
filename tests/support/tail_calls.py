"""Hand-made calls of a run, with steady gaps between tokens and room for what goes wrong."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from mileage.measure.call_record import CallRecord

__all__ = ["call", "steady_run"]


def call(
    index: int,
    scheduled_s: float,
    *,
    ttft_s: float = 0.05,
    gaps_s: Sequence[float] = (0.02,) * 9,
    lag_s: float = 0.0,
    connect_s: float | None = None,
    prompt_tokens: int | None = 100,
    **other: object,
) -> CallRecord:
    """A call that was sent as soon as it was taken up and connected; `ttft_s` is from then on."""
    taken = scheduled_s + lag_s
    connected = None if connect_s is None else taken + connect_s
    sent = taken if connected is None else connected
    times = [sent + ttft_s]
    for gap_s in gaps_s:
        times.append(times[-1] + gap_s)
    fields: dict[str, object] = {
        "index": index,
        "phase": "measured",
        "outcome": "ok",
        "scheduled_s": scheduled_s,
        "taken_s": taken,
        "connected_s": connected,
        "sent_s": sent,
        "answered_s": times[0],
        "ended_s": times[-1],
        "token_times_s": array("d", times),
        "token_events": array("I", [1] * len(times)),
        "planned_prompt_tokens": prompt_tokens,
        "prompt_tokens": prompt_tokens,
        "output_tokens": len(times),
        "status": 200,
    }
    return CallRecord(**{**fields, **other})  # type: ignore[arg-type]


def steady_run(count: int = 100, *, every_s: float = 0.1, first: int = 0) -> list[CallRecord]:
    """Calls that differ in nothing but their time."""
    return [call(first + i, (first + i) * every_s) for i in range(count)]
