"""The result of a sweep: figures of each point, the front, and three picks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage import __version__
from mileage.cli.bench_repeats import Repeated, point_faults, repeated_figures
from mileage.cli.bench_sweep_noise import throughput_noise
from mileage.cli.bench_sweep_points import SweepPoint
from mileage.cli.bench_sweep_run import SweepRuns
from mileage.measure.pareto import Objective, non_dominated, picks

__all__ = ["LATENCY_KEYS", "QUANTILES", "sweep_document", "sweep_exit_code"]

QUANTILES: Final = ("p50", "p90", "p95", "p99")
LATENCY_KEYS: Final = ("ttft_s", "itl_s", "tpot_s", "e2e_s")
_RATES: Final = (
    "requests_per_s",
    "output_tokens_per_s",
    "prompt_tokens_per_s",
    "goodput_rps",
    "slo_attainment_ratio",
    "usd_per_mtok",
    "utilisation_ratio",
    "memory_bytes",
    "energy_j_per_output_token",
    "generator.cpu_ratio",
    "generator.lag_p99_s",
)
_THROUGHPUT: Final = "output_tokens_per_s"
_REQUESTS: Final = "requests_per_s"
_COST: Final = "usd_per_mtok"

_Figures = Mapping[str, Repeated | None]


def sweep_document(
    points: Sequence[SweepPoint], runs: SweepRuns, *, quantile: str, repeats: int
) -> dict[str, Any]:
    """The document. A point that cannot be compared says why in `excluded`, and is on no front."""
    keys = [f"{key}.{q}" for key in LATENCY_KEYS for q in QUANTILES] + list(_RATES)
    figures = [repeated_figures(documents, keys) for documents in runs.documents]
    faults = [
        _faults(point, documents, runs)
        for point, documents in zip(points, runs.documents, strict=True)
    ]
    objectives = _objectives(figures, faults, quantile)
    values = [_values(f, bad, objectives) for f, bad in zip(figures, faults, strict=True)]
    front = non_dominated(values, objectives)
    rate = _throughput(objectives)
    noise = [
        throughput_noise(f[rate], documents, rate)
        for f, documents in zip(figures, runs.documents, strict=True)
    ]
    chosen = picks(values, objectives, latency=objectives[0].name, throughput=rate, noise=noise)
    near = [front[i] or _could_be(i, figures[i], values, objectives) for i in range(len(points))]
    return {
        "points": [
            {
                "label": point.label,
                "value": point.value,
                "concurrency": point.concurrency,
                "rate_rps": point.rate,
                "rate_scale": point.rate_scale,
                "on_front": front[i],
                "within_noise_of_front": near[i],
                "excluded": faults[i],
                "throughput_noise": noise[i],
                "figures": msgspec.to_builtins(figures[i]),
                "runs": runs.documents[i],
            }
            for i, point in enumerate(points)
        ],
        "objectives": [{"figure": o.name, "sense": o.sense} for o in objectives],
        "picks": {
            name: None if index is None else points[index].label
            for name, index in msgspec.to_builtins(chosen).items()
        },
        "pick_indices": msgspec.to_builtins(chosen),
        "quantile": quantile,
        "repeats": repeats,
        "interrupted": runs.interrupted,
        "settings_not_restored": runs.restored,
        "version": __version__,
    }


def sweep_exit_code(document: Mapping[str, Any]) -> int:
    """0 where there is a front; 130 interrupted; else 3 where the generator, or too little, was
    what was measured, and 1 where the endpoint failed."""
    if document["interrupted"]:
        return 130
    if document["settings_not_restored"] is not None:
        return 1
    if any(point["on_front"] for point in document["points"]):
        return 0
    limited = any(
        "generator" in fault for point in document["points"] for fault in point["excluded"]
    )
    return 3 if limited else 1


def _faults(
    point: SweepPoint, documents: Sequence[Mapping[str, Any]], runs: SweepRuns
) -> list[str]:
    if point.value is not None and point.value in runs.faults:
        return [runs.faults[point.value]]
    return point_faults(documents) if documents else ["it was not measured"]


def _objectives(
    figures: Sequence[_Figures], faults: Sequence[Sequence[str]], quantile: str
) -> list[Objective]:
    """What all points that can be compared have: TTFT and ITL of streams, else E2E; throughput in
    tokens, else in requests; and cost, where a price is known."""
    whole = [each for each, bad in zip(figures, faults, strict=True) if not bad]

    def known(key: str) -> bool:
        return bool(whole) and all(each[key] is not None for each in whole)

    latencies = [f"{name}.{quantile}" for name in ("ttft_s", "itl_s")]
    if not all(known(key) for key in latencies):
        latencies = [f"e2e_s.{quantile}"]
    found = [Objective(name=key, sense="min") for key in latencies]
    rate = _THROUGHPUT if known(_THROUGHPUT) else _REQUESTS
    found.append(Objective(name=rate, sense="max"))
    if known(_COST):
        found.append(Objective(name=_COST, sense="min"))
    return found


def _throughput(objectives: Sequence[Objective]) -> str:
    return next(each.name for each in objectives if each.sense == "max")


def _values(
    figures: _Figures, faults: Sequence[str], objectives: Sequence[Objective]
) -> dict[str, float | None]:
    if faults:
        return {each.name: None for each in objectives}
    return {
        each.name: None if (found := figures[each.name]) is None else found.mean
        for each in objectives
    }


def _could_be(
    index: int,
    figures: _Figures,
    values: Sequence[Mapping[str, float | None]],
    objectives: Sequence[Objective],
) -> bool:
    """Whether the point were on the front with the better end of its own intervals."""
    best: dict[str, float | None] = {}
    for each in objectives:
        found = figures[each.name]
        if values[index][each.name] is None or found is None:
            return False
        end = found.low if each.sense == "min" else found.high
        best[each.name] = found.mean if end is None else end
    changed = [best if i == index else value for i, value in enumerate(values)]
    return non_dominated(changed, objectives)[index]
