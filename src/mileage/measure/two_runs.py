"""Two runs that were not interleaved: how their figures differ, with intervals over time blocks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Literal

import msgspec
import numpy as np

from mileage.core.slo import Slo
from mileage.measure.bootstrap import (
    BootstrapRatio,
    bootstrap_mean_ratio,
    bootstrap_quantile_ratio,
)
from mileage.measure.call_record import CallRecord
from mileage.measure.quantiles import quantile
from mileage.measure.record_latency import Floats, gaps_of, good, latencies
from mileage.measure.run_series import run_series

__all__ = ["BLOCKS_MAX", "BLOCKS_MIN", "RunDifference", "RunWindow", "two_runs"]

BLOCKS_MIN: Final = 8
"""With fewer blocks nothing is said about how much a run varies."""
BLOCKS_MAX: Final = 20
_BLOCK_S: Final = 2.0
"""Requests of one queue are not independent; blocks this long mostly are."""
_BEYOND_MIN: Final = 5.0
"""Values beyond a quantile, in the run with fewer: resamples of the few largest say nothing about
how far they could have been."""
_LATENCIES: Final = ("ttft", "itl", "tpot", "e2e")
_QUANTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))


class RunWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A run's records, all of them, and its measured window on the run's clock."""

    records: Sequence[CallRecord]
    start_s: float
    end_s: float


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of run b against run a. What was not seen, or cannot be told, is None."""

    metric: str
    better: Literal["lower", "higher"]
    a: float | None
    b: float | None
    ratio: float | None
    """b / a."""
    ci95: tuple[float, float] | None
    """Of this metric alone."""
    verdict: Literal["better", "worse", "no_difference"] | None
    """At `level`; None where there is no interval."""
    level: float
    """What the interval that the verdict is by may miss: 5 %, shared by the metrics that decide."""


def two_runs(
    a: RunWindow, b: RunWindow, *, slo: Slo, deciding: Sequence[str], seed: int = 0
) -> dict[str, RunDifference]:
    """Differences by metric, of those that both runs have.

    Each window is cut into as many blocks of time, of which the bootstrap draws: requests of one
    queue are alike, and an interval that took them for independent would be too narrow. Blocks of
    the two are paired by their place, so that what a replayed trace does at a time cancels. What
    changed from one run to the next, such as a neighbour's load, is in the difference, and in no
    interval. Raises ValueError for a window without a length.
    """
    if not (a.end_s > a.start_s and b.end_s > b.start_s):
        raise ValueError("a window ends after it begins")
    shorter_s = min(a.end_s - a.start_s, b.end_s - b.start_s)
    count = min(BLOCKS_MAX, int(shorter_s / _BLOCK_S))
    blocks = max(1, count)
    cut_a, cut_b = _blocks(a, blocks, slo), _blocks(b, blocks, slo)
    level = 0.05 / max(1, sum(name in deciding for name in _names()))
    found: dict[str, RunDifference] = {}
    for short in _LATENCIES:
        values = cut_a[short], cut_b[short]
        for at, q in _QUANTILES:
            name = f"{short}_{at}_s"
            own = level if name in deciding else 0.05
            each = _difference(name, "lower", *values, q, own, seed, enough=count >= BLOCKS_MIN)
            if each is not None:
                found[name] = each
    for name in ("requests_per_s", "output_tokens_per_s", "goodput_rps"):
        values = cut_a[name], cut_b[name]
        own = level if name in deciding else 0.05
        each = _difference(name, "higher", *values, None, own, seed, enough=count >= BLOCKS_MIN)
        if each is not None:
            found[name] = each
    return found


def _names() -> list[str]:
    names = [f"{short}_{at}_s" for short in _LATENCIES for at, _ in _QUANTILES]
    return [*names, "requests_per_s", "output_tokens_per_s", "goodput_rps"]


_Cut = list[Floats]


def _difference(
    name: str,
    better: Literal["lower", "higher"],
    a: _Cut,
    b: _Cut,
    q: float | None,
    level: float,
    seed: int,
    *,
    enough: bool,
) -> RunDifference | None:
    whole = _value(a, q), _value(b, q)
    if whole[0] is None or whole[1] is None:
        return None
    alone = judged = None
    if q is not None:
        fewest = min(sum(map(len, a)), sum(map(len, b)))
        enough = enough and (1.0 - q) * fewest >= _BEYOND_MIN
    if enough and whole[0] > 0.0 and whole[1] > 0.0:
        alone = _interval(a, b, q, 0.05, seed)
        judged = alone if level == 0.05 else _interval(a, b, q, level, seed)
    verdict: Literal["better", "worse", "no_difference"] | None = None
    if judged is not None:
        verdict = "no_difference"
        if judged.low > 1.0 or judged.high < 1.0:
            verdict = "better" if (judged.ratio < 1.0) == (better == "lower") else "worse"
    return RunDifference(
        metric=name,
        better=better,
        a=whole[0],
        b=whole[1],
        ratio=whole[1] / whole[0] if whole[0] > 0.0 else None,
        ci95=None if alone is None else (alone.low, alone.high),
        verdict=verdict,
        level=level,
    )


def _value(cut: _Cut, q: float | None) -> float | None:
    values = np.concatenate(cut)
    if not len(values):
        return None
    return float(values.mean()) if q is None else quantile(values.tolist(), q)


def _interval(a: _Cut, b: _Cut, q: float | None, level: float, seed: int) -> BootstrapRatio | None:
    random = Random(seed)  # noqa: S311 -- resamples, not secrets
    if q is None:
        return bootstrap_mean_ratio(a, b, random=random, alpha=level)
    return bootstrap_quantile_ratio(a, b, q, random=random, alpha=level)


def _blocks(run: RunWindow, count: int, slo: Slo) -> dict[str, _Cut]:
    """Values of each metric, an array a block; of a rate one value a block."""
    span_s = (run.end_s - run.start_s) / count
    columns = latencies(run.records)

    def place(times_s: Floats) -> Floats:
        at = np.floor((times_s - run.start_s) / span_s)
        inside = (times_s >= run.start_s) & (times_s < run.end_s)
        return np.where(inside, np.minimum(at, count - 1), -1.0)

    due = place(columns.scheduled_s)
    own = [np.flatnonzero(columns.ok & (due == block)) for block in range(count)]
    found: dict[str, _Cut] = {
        short: [_known(values[rows]) for rows in own]
        for short, values in (
            ("ttft", columns.ttft_s),
            ("tpot", columns.tpot_s),
            ("e2e", columns.e2e_s),
        )
    }
    gaps = [gaps_of([run.records[row] for row in rows.tolist()]) for rows in own]
    found["itl"] = [np.append(each.gaps_s, np.zeros(each.zeros)) for each in gaps]
    series = run_series(run.records, start_s=run.start_s, end_s=run.end_s, step_s=span_s)
    found["requests_per_s"] = _rates(series.done[:count], span_s)
    found["output_tokens_per_s"] = _rates(series.output_tokens[:count], span_s)
    found["goodput_rps"] = [np.empty(0)] * count
    if slo.ttft_s is not None or slo.itl_s is not None:
        ended = place(columns.ended_s)
        met = ended[columns.ok & good(run.records, slo) & (ended >= 0)].astype(np.int64)
        found["goodput_rps"] = _rates(np.bincount(met, minlength=count).tolist(), span_s)
    return found


def _rates(counts: Sequence[float], span_s: float) -> _Cut:
    return [np.array([count / span_s]) for count in counts]


def _known(values: Floats) -> Floats:
    return values[~np.isnan(values)]
