"""How far off ratios are: pairs of measurements of one setup that differ in one thing alone.

What a change brings is such a ratio, and the errors that both share drop out of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations

import msgspec
import numpy as np

from benchmarks.support.measured import Measured, classes
from benchmarks.support.steptime_fit import Predictor
from benchmarks.support.steptime_judge import COVERAGE, SATURATED_RATIO
from mileage.costmodel.efficiency import Efficiency
from mileage.costmodel.operators import Array

__all__ = ["KINDS", "pair_errors", "pair_figures"]

KINDS = ("concurrency", "tensor_parallel", "weights")
"""What the two of a pair differ in."""


def pair_figures(
    rows: Sequence[Measured], without: Callable[[str], Efficiency]
) -> dict[str, dict[str, object]]:
    """Of each kind: pairs, and the factors that four of five measured ratios are within of the
    predicted ones. `without`: the efficiencies fitted without a source class."""
    figures: dict[str, dict[str, object]] = {}
    sources = []
    for name in classes(rows):
        own = [row for row in rows if row.source_class == name]
        efficiency, predictor = without(name), Predictor(own)
        tpot, ttft = predictor.errors(efficiency)
        share = predictor.latencies(efficiency).prefill_share_ratio
        sources.append((own, tpot, np.where(share > SATURATED_RATIO, np.nan, ttft)))
    for kind in KINDS:
        tpots = [each for own, tpot, _ in sources for each in pair_errors(own, tpot, kind)]
        ttfts = [each for own, _, ttft in sources for each in pair_errors(own, ttft, kind)]
        figures[kind] = {
            "tpot_pairs": len(tpots),
            "tpot_factor": _factor(tpots),
            "ttft_pairs": len(ttfts),
            "ttft_factor": _factor(ttfts),
        }
    return figures


def pair_errors(rows: Sequence[Measured], errors: Array, kind: str) -> list[float]:
    """Logarithms of predicted over measured ratio, of all pairs whose both errors are known."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if np.isfinite(errors[index]):
            groups[_without(row, kind)].append(index)
    return [
        float(errors[one] - errors[other])
        for group in groups.values()
        for one, other in combinations(group, 2)
        if _part(rows[one], kind) != _part(rows[other], kind)
    ]


def _part(row: Measured, kind: str) -> float | str:
    if kind == "concurrency":
        return row.requests
    return row.deployment.weights if kind == "weights" else row.deployment.tensor_parallel


def _without(row: Measured, kind: str) -> Hashable:
    """All of a row but that."""
    deployment = row.deployment
    if kind == "weights":
        deployment = msgspec.structs.replace(deployment, weights="bf16")
    elif kind == "tensor_parallel":
        deployment = msgspec.structs.replace(deployment, tensor_parallel=1, expert_parallel=1)
    requests = 0.0 if kind == "concurrency" else row.requests
    return msgspec.msgpack.encode(deployment), requests, row.prompt_tokens, row.output_tokens


def _factor(errors: Sequence[float]) -> float | None:
    if not errors:
        return None
    return round(float(np.exp(np.quantile(np.abs(errors), COVERAGE))), 3)
