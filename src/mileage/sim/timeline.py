"""Timeline: how a simulation went over time: traffic, latency and the fleet's state, per bin."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.measure.quantiles import rank
from mileage.sim.outcome import OK
from mileage.sim.series import SIGNALS
from mileage.sim.simulation import SimResult

__all__ = ["Timeline", "timeline_of"]

Column = tuple[float | None, ...]
_QS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of one value per bin; None: nothing was seen in it.

    Requests belong to the bin of their arrival, but for `completions` and `output_tokens`, which
    belong to that of their end.
    """

    width_s: float
    time_s: tuple[float, ...]
    """Begin of each bin, since the start of the trace."""
    arrivals: tuple[int, ...]
    completions: tuple[int, ...]
    """Answers that were complete."""
    unanswered: tuple[int, ...]
    """Requests that were refused, failed or left."""
    output_tokens: tuple[int, ...]
    """Of the answers that were complete."""
    latency_s: dict[str, dict[str, Column]]
    """By kind (ttft, itl_p99, itl_mean, e2e) and quantile (p50, p95, p99): exact."""
    fleet: dict[str, Column]
    """By signal of `sim.series.SIGNALS`: the mean of its samples."""


def timeline_of(result: SimResult, *, bins_max: int = 240) -> Timeline:
    """The result in at most `bins_max` (1 or more) bins of equal width, a multiple of that of the
    samples of the fleet's state."""
    assert bins_max >= 1
    out, series = result.outcomes, result.series
    span_s = max(result.duration_s, series.width_s)
    width_s = series.width_s * max(1, int(np.ceil(span_s / series.width_s / bins_max)))
    count = max(1, int(np.ceil(span_s / width_s)))
    arrived_s = np.array(out.arrived_s) - result.start_s
    ended_s = arrived_s + np.array(out.e2e_s)
    answered = np.array(out.status, dtype=np.int8) == OK
    tokens = np.array(out.output_tokens, dtype=np.float64)
    begun = _bins(arrived_s, width_s, count)
    ended = _bins(ended_s[answered], width_s, count)
    columns = {
        "ttft": out.ttft_s,
        "itl_p99": out.itl_p99_s,
        "itl_mean": out.itl_mean_s,
        "e2e": out.e2e_s,
    }
    return Timeline(
        width_s=width_s,
        time_s=tuple(result.start_s + i * width_s for i in range(count)),
        arrivals=_counts(begun, count),
        completions=_counts(ended, count),
        unanswered=_counts(begun[~answered], count),
        output_tokens=tuple(
            int(n) for n in np.bincount(ended, weights=tokens[answered], minlength=count)
        ),
        latency_s={
            kind: _quantiles(begun[answered], np.array(values)[answered], count)
            for kind, values in columns.items()
        },
        fleet={signal: _sampled(result, signal, width_s, count) for signal in SIGNALS},
    )


def _bins(time_s: NDArray[np.float64], width_s: float, count: int) -> NDArray[np.int64]:
    # The very last end lies on the upper edge of the last bin.
    return np.minimum((time_s / width_s).astype(np.int64), count - 1)


def _counts(bins: NDArray[np.int64], count: int) -> tuple[int, ...]:
    return tuple(int(n) for n in np.bincount(bins, minlength=count))


def _quantiles(
    bins: NDArray[np.int64], values: NDArray[np.float64], count: int
) -> dict[str, Column]:
    known = ~np.isnan(values)
    bins, values = bins[known], values[known]
    order = np.lexsort((values, bins))
    values = values[order]
    edges = np.searchsorted(bins[order], np.arange(count + 1))
    found: dict[str, Column] = {}
    for name, q in _QS.items():
        found[name] = tuple(
            float(values[start + rank(q, end - start) - 1]) if end > start else None
            for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        )
    return found


def _sampled(result: SimResult, signal: str, width_s: float, count: int) -> Column:
    series = result.series
    per_bin = round(width_s / series.width_s)
    means = [
        0.0 if n == 0 else m for m, n in zip(series.means(signal), series.samples, strict=True)
    ]
    column: list[float | None] = []
    for start in range(0, count * per_bin, per_bin):
        samples = series.samples[start : start + per_bin]
        total = sum(samples)
        sums = sum(m * n for m, n in zip(means[start : start + per_bin], samples, strict=True))
        column.append(sums / total if total else None)
    return tuple(column)
