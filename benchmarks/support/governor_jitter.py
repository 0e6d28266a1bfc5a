"""How steady completions are under bursty arrivals, against fixed batches of 64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.support.calls import Call, Mix, bursty_times
from benchmarks.support.governor_lanes import Lane, run_lanes
from benchmarks.support.governor_part import Part, Surroundings
from benchmarks.support.governor_policies import show_rows, step_capacity_per_s
from benchmarks.support.step_answers import CHAT_MODEL
from benchmarks.support.step_upstream import StepUpstream
from benchmarks.support.verdict import Bar
from benchmarks.support.watch import LOAD_CORE
from mileage.measure.quantiles import quantile

__all__ = ["jitter", "measure_jitter"]

MIX = Mix(model=CHAT_MODEL, prompt_tokens=(48, 80), output_tokens=(28, 36))
BATCH = 64
FORMED = "batches of 64"
STATIC = "static 64"
LOAD_RATIO = 0.9
VARIATION = 3.0
BIN_S = 1.0
WARM_S = 12.0
DRAIN_S = 30.0
LAG_MAX_S = 0.1
"""A burst is sent one by one; bins are a second wide."""
ITL_TARGET_S = 0.065
"""About twice a step with few sequences. There is no target for the first token: all requests
are served, on every arm the same ones."""


def measure_jitter(around: Surroundings) -> Part:
    """The same bursts for every arm."""
    part = Part()
    seconds = 10.0 if around.quick else 90.0
    governors: dict[str, Mapping[str, Any]] = {
        STATIC: {"policy": "static", "static": {"limit": BATCH}},
        "volatility": {"policy": "volatility"},
        "model": {"policy": "model"},
    }
    with StepUpstream(around.new_directory("capacity"), core=LOAD_CORE) as engine:
        capacity_per_s = step_capacity_per_s(engine, MIX, 4.0 if around.quick else 10.0, BATCH)
    times = bursty_times(31, LOAD_RATIO * capacity_per_s, WARM_S + seconds, variation=VARIATION)
    lanes = [
        Lane(name, MIX.calls(32, times), {"governor": governor, "slo": {"itl_s": ITL_TARGET_S}})
        for name, governor in governors.items()
    ]
    lanes.append(Lane(FORMED, MIX.calls(32, times), engine={"batch_size": BATCH}))
    run_lanes(around, lanes, part, drain_s=DRAIN_S, lag_max_s=LAG_MAX_S)
    for lane in lanes:
        missing = sum(call.e2e_s is None for call in lane.calls)
        if missing:
            part.failures.append(f"{lane.name}: {missing} requests without an answer")
    rows = {lane.name: _row(lane.calls, times[-1]) for lane in lanes}
    show_rows(
        around, f"Bursts of {LOAD_RATIO:.0%} of {capacity_per_s:.1f} requests/s on average", rows
    )
    part.figures = {"jitter_capacity_per_s": round(capacity_per_s, 2), "jitter": rows}
    for figure, other in (("batches", FORMED), ("limit", STATIC)):
        for key, field in (("jitter", "completions_sigma_over_mean"), ("p99", "e2e_p99_s")):
            if rows[other][field]:
                ratio = rows["model"][field] / rows[other][field]
                part.figures[f"{key}_vs_{figure}_of_64"] = round(ratio, 3)
    part.bars = (
        Bar("jitter_vs_batches_of_64", 0.5, at_least=False),
        Bar("p99_vs_batches_of_64", 1.0, at_least=False),
    )
    return part


def jitter(ends_s: Sequence[float], start_s: float, end_s: float, bin_s: float) -> float | None:
    """Sigma over mean of how many ended in each bin between the two times; None where none did."""
    counts = [0] * int((end_s - start_s) / bin_s)
    for at_s in ends_s:
        if start_s <= at_s < start_s + len(counts) * bin_s:
            counts[int((at_s - start_s) / bin_s)] += 1
    total = sum(counts)
    if not total:
        return None
    mean = total / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / len(counts)
    return float(variance**0.5 / mean)


def _row(calls: Sequence[Call], end_s: float) -> dict[str, Any]:
    """The figures of one arm, without its first seconds."""
    counted = [call for call in calls if call.due_s >= WARM_S]
    ends_s = [call.end_s for call in calls if call.whole and call.end_s is not None]
    e2e_s = [t for call in counted if (t := call.e2e_s) is not None]
    found = jitter(ends_s, WARM_S, end_s, BIN_S)
    return {
        "completions_sigma_over_mean": round(found or 0.0, 4),
        "arrivals_sigma_over_mean": round(
            jitter([call.due_s for call in calls], WARM_S, end_s, BIN_S) or 0.0, 4
        ),
        "e2e_p50_s": round(quantile(e2e_s, 0.5) or 0.0, 3),
        "e2e_p99_s": round(quantile(e2e_s, 0.99) or 0.0, 3),
        "requests": len(counted),
    }
