"""throughput_noise(): by how much a point's throughput may be off, of several runs or of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mileage.cli.bench_repeats import Repeated
from mileage.measure.batch_means import batch_half

__all__ = ["throughput_noise"]

_COLUMNS: Final = {"output_tokens_per_s": "output_tokens", "requests_per_s": "done"}


def throughput_noise(
    figure: Repeated | None, documents: Sequence[Mapping[str, Any]], key: str
) -> float | None:
    """Half of the interval over the runs; of a single run that of its whole seconds, by batch
    means. None where neither tells."""
    if figure is None:
        return None
    if figure.low is not None and figure.high is not None:
        return (figure.high - figure.low) / 2
    series, window = documents[0].get("series"), documents[0].get("window")
    if series is None or window is None:
        return None
    step_s = series["step_s"]
    inside = [
        value / step_s
        for second_s, value in zip(series["second_s"], series[_COLUMNS[key]], strict=True)
        if window["start_s"] <= second_s and second_s + step_s <= window["end_s"]
    ]
    return batch_half(inside)
