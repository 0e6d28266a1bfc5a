"""The result of a scale-out: efficiency by replicas, the knee, and what is shared there."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage import __version__
from mileage.cli.bench_figures import value_at
from mileage.cli.bench_repeats import point_faults, repeated_figures
from mileage.cli.bench_scale_run import ScaleRun, ScaleRuns
from mileage.measure.scaling import ScalePoint, Scaling, scaling
from mileage.measure.shared_resource import ReplicaEvidence, shared_resources

__all__ = ["scale_document", "scale_exit_code"]

_KEYS: Final = (
    "output_tokens_per_s",
    "requests_per_s",
    "goodput_rps",
    "slo_attainment_ratio",
    "ttft_s.p50",
    "ttft_s.p95",
    "itl_s.p95",
    "e2e_s.p50",
    "e2e_s.p95",
    "generator.cpu_ratio",
)
_ERROR_MIN: Final = 0.01
"""Relative standard error below which runs are not believed to be: they are few."""
_LATENCIES: Final = ("ttft_s.p95", "e2e_s.p95")


def scale_document(runs: ScaleRuns, *, is_open: bool, repeats: int) -> dict[str, Any]:
    """The document. A number of replicas that cannot be judged says why in `excluded`."""
    by_count: dict[int, list[ScaleRun]] = {}
    for run in runs.runs:
        by_count.setdefault(run.replicas, []).append(run)
    counts = sorted(by_count)
    documents = {count: [run.document for run in by_count[count]] for count in counts}
    faults = {count: point_faults(documents[count]) for count in counts}
    key = _throughput_key([doc for each in documents.values() for doc in each], is_open=is_open)
    judged = _judged({c: documents[c] for c in counts if not faults[c]}, key)
    shared = None if judged is None else _shared(judged, by_count, faults)
    scaled = {} if judged is None else {point.replicas: point for point in judged.points}
    return {
        "points": [
            {
                "replicas": count,
                "excluded": faults[count],
                "scaling": msgspec.to_builtins(scaled[count]) if count in scaled else None,
                "figures": msgspec.to_builtins(repeated_figures(documents[count], _KEYS)),
                "evidence": [msgspec.to_builtins(run.evidence) for run in by_count[count]],
                "runs": documents[count],
            }
            for count in counts
        ],
        "throughput": key,
        "knee": None if judged is None else judged.knee,
        "law": None if judged is None else msgspec.to_builtins(judged.law),
        "best_replicas": _best(judged),
        "superlinear": [] if judged is None else list(judged.superlinear),
        "sublinear": [] if judged is None else list(judged.sublinear),
        "shared": shared,
        "load": "open" if is_open else "closed",
        "repeats": repeats,
        "interrupted": runs.interrupted,
        "fleet_not_restored": runs.restored,
        "version": __version__,
    }


def scale_exit_code(document: Mapping[str, Any]) -> int:
    """0 where two numbers of replicas can be judged; 130 interrupted; else 3 where the generator
    was the limit, and 1 where the endpoints failed."""
    if document["interrupted"]:
        return 130
    if document["fleet_not_restored"] is not None:
        return 1
    points = document["points"]
    if sum(point["scaling"] is not None for point in points) >= min(2, len(points)):
        return 0
    limited = any("generator" in why for point in points for why in point["excluded"])
    return 3 if limited else 1


def _throughput_key(documents: Sequence[Mapping[str, Any]], *, is_open: bool) -> str:
    """An open loop offers the same to all: what counts is how much was good, where that is known.
    A closed one at saturation gives what there is."""
    keys = ["output_tokens_per_s", "requests_per_s"]
    if is_open:
        keys.insert(0, "goodput_rps")
    for key in keys:
        if documents and all((value_at(each, key) or 0.0) > 0.0 for each in documents):
            return key
    return keys[-1]


def _judged(documents: Mapping[int, Sequence[Mapping[str, Any]]], key: str) -> Scaling | None:
    """The scale-out by the means of its runs; None without a number that can be judged.

    Runs of one number are few, so the relative error is that of all numbers together.
    """
    values = {
        count: [value_at(each, key) or 0.0 for each in each_run]
        for count, each_run in documents.items()
    }
    values = {count: each for count, each in values.items() if each and min(each) > 0.0}
    if not values:
        return None
    relative = _relative_deviation(list(values.values()))
    points = []
    for count, each in values.items():
        mean = statistics.fmean(each)
        error = None
        if relative is not None:
            error = mean * max(_ERROR_MIN, relative / math.sqrt(len(each)))
        points.append(
            ScalePoint(
                replicas=count,
                throughput=mean,
                throughput_sd=error,
                latency_s=_latency(documents[count]),
            )
        )
    return scaling(points)


def _relative_deviation(values: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation over the mean, pooled; None where nothing was measured twice."""
    squares, freedom = 0.0, 0
    for each in values:
        mean = statistics.fmean(each)
        squares += sum((value / mean - 1.0) ** 2 for value in each)
        freedom += len(each) - 1
    return math.sqrt(squares / freedom) if freedom else None


def _latency(documents: Sequence[Mapping[str, Any]]) -> float | None:
    for key in _LATENCIES:
        found = [value_at(each, key) for each in documents]
        known = [value for value in found if value is not None]
        if known and len(known) == len(found):
            return statistics.fmean(known)
    return None


def _shared(
    judged: Scaling,
    by_count: Mapping[int, Sequence[ScaleRun]],
    faults: Mapping[int, Sequence[str]],
) -> dict[str, Any] | None:
    """What is shared at the first number of replicas past the knee, or where throughput is below
    linear; a number past it whose runs measured the generator says so. None: all is linear."""
    counts = [point.replicas for point in judged.points]
    at: int | None = None
    if judged.knee is not None:
        at = next(count for count in counts if count > judged.knee)
    elif judged.sublinear:
        at = judged.sublinear[-1]
    else:
        at = next((c for c in sorted(by_count) if c > counts[-1] and faults[c]), None)
    if at is None:
        return None
    base = _typical(by_count[counts[0]])
    found = shared_resources(base, _typical(by_count[at]))
    return {
        "at_replicas": at,
        "resource": found[0].resource,
        "evidence": found[0].evidence,
        "also": msgspec.to_builtins(found[1:]),
    }


def _typical(runs: Sequence[ScaleRun]) -> ReplicaEvidence:
    """Of several runs the one of the middle by CPU per token; those without come first."""
    ordered = sorted(runs, key=lambda run: run.evidence.cpu_s_per_token or 0.0)
    limited = [run for run in ordered if run.evidence.generator_reason is not None]
    return (limited or ordered)[len(limited or ordered) // 2].evidence


def _best(judged: Scaling | None) -> float | None:
    """The number with the highest throughput by the fitted law; None: none, or it grows on."""
    return None if judged is None or judged.law is None else judged.law.replicas_best()
