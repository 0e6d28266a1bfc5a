"""The attribution's formula against the Shapley value: what each tenant adds to the busy time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from math import factorial

from benchmarks.support.attribution_cases import Case, Run, run_case, simulate_case
from benchmarks.support.attribution_prices import errors_of
from benchmarks.support.attribution_table import seconds_by_table
from benchmarks.support.attribution_traffic import TENANTS
from benchmarks.support.attribution_truth import true_model, truth_of, windows_of_steps
from mileage.ledger.attribution_config import AttributionConfig

__all__ = ["SHAPLEY_CASES", "Shapley", "shapley"]

SHAPLEY_CASES = (
    Case("A10", 2048, 0.05, seed=201),
    Case("A10", 2048, 0.1, seed=202),
    Case("A10", 2048, 0.2, seed=203),
    Case("A100", 2048, 0.1, seed=204),
    Case("H100", 8192, 0.3, seed=205),
    Case("H100", 8192, 10.0, seed=206, hurry=20.0),
    Case("A10", 256, 0.5, seed=207),
    Case("A100", 2048, 0.65, seed=208),
    Case("H100", 8192, 4.0, seed=209),
)
IDLE_MIN_RATIO = 0.3
_BACKLOG_HURRY = 5.0


@dataclass(frozen=True, slots=True)
class Shapley:
    """Of one case."""

    case: Case
    busy_ratio: float
    solo_ratio: float
    """Busy time of the tenants one by one, over that of all together."""
    errors: dict[str, float]
    """Of the formula as it is configured by default, by tenant."""
    errors_of_prices: dict[str, float]
    """Of what each thing really costs there alone, without the ratios of memory and computing."""

    @property
    def kind(self) -> str:
        """idle: the replica idles now and then whoever is there, so that another tenant makes it
        busier; backlog: it is never done, whoever is there; busy: neither, so that another tenant
        makes batches larger, and adds little time."""
        if self.case.hurry >= _BACKLOG_HURRY:
            return "backlog"
        return "idle" if self.busy_ratio <= 1.0 - IDLE_MIN_RATIO else "busy"


def shapley(case: Case) -> Shapley:
    """Sixteen runs of subsets of the tenants, each with the same requests; steps have no noise."""
    names = tuple(TENANTS)
    run = run_case(case, noise_ratio=0.0)
    whole = run.result.replicas[0].busy_s
    busy_s = {frozenset[str](): 0.0, frozenset(names): whole}
    for size in range(1, len(names)):
        for group in combinations(names, size):
            result = simulate_case(case, case.requests(group), noise_ratio=0.0)
            busy_s[frozenset(group)] = result.replicas[0].busy_s
    value = {name: _value(name, names, busy_s) for name in names}
    return Shapley(
        case=case,
        busy_ratio=whole / run.result.duration_s,
        solo_ratio=sum(busy_s[frozenset((name,))] for name in names) / whole,
        errors=errors_of(_by_formula(run), value),
        errors_of_prices=errors_of(seconds_by_table(run), value),
    )


def _by_formula(run: Run) -> dict[str, float]:
    model, config = true_model(run), AttributionConfig()
    found: dict[str, float] = defaultdict(float)
    for window in windows_of_steps(run):
        if window.steps:
            shares, _ = truth_of(window, model, 1.0, config)
            for request_id, gpu_ns in shares.items():
                found[run.timelines[request_id - 1].tenant] += gpu_ns / 1e9
    return dict(found)


def _value(name: str, names: tuple[str, ...], worth: dict[frozenset[str], float]) -> float:
    """L. S. Shapley, "A Value for n-Person Games", 1953."""
    total, count = 0.0, len(names)
    others = [other for other in names if other != name]
    for size in range(count):
        weight = factorial(size) * factorial(count - size - 1) / factorial(count)
        for group in combinations(others, size):
            total += weight * (worth[frozenset((*group, name))] - worth[frozenset(group)])
    return total
