"""Estimates of the attribution's benchmark: what each basis makes of a run, beside its truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from benchmarks.support.attribution_cases import Case, run_case
from benchmarks.support.attribution_prices import (
    by_average_rate,
    by_fitted_prices,
    by_true_prices,
    worst_error,
)
from benchmarks.support.attribution_table import seconds_by_table
from benchmarks.support.attribution_truth import (
    WINDOW_NS,
    Window,
    true_model,
    truth_of,
    windows_of_steps,
)
from mileage.core.timeline import RequestTimeline
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.replica_attribution import ReplicaAttribution

__all__ = ["BASES", "Found", "Measured", "measure"]

BASES = ("steps", "token_times", "first_last")


@dataclass(slots=True)
class Found:
    """What one basis found."""

    gpu_ns: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    inside: int = 0
    """Shares of a request in a window whose interval has the true one."""
    shares: int = 0
    flagged: int = 0
    flagged_again: int = 0
    """Windows that are marked as saturated; and those in which something was computed anew."""
    others: int = 0
    """Windows that rest on another basis than was asked for."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was found in one case."""

    case: Case
    requests: int
    truth: dict[str, float]
    preempted_ratio: float
    busy_ratio: float
    windows: int
    windows_again: int
    """Of them, those in which something was computed anew after a preemption."""
    found: dict[str, Found]
    two_price: float
    two_price_oracle: float
    token_average: float
    by_table: float
    """Error of the truth itself: of the formula with a model fitted to all steps, against the same
    with what each thing really costs there."""

    def error(self, basis: str) -> float:
        """Of the worst tenant."""
        return worst_error(self.found[basis].gpu_ns, self.truth)

    @property
    def least_share(self) -> float:
        """Of the tenant with the lowest cost."""
        return min(self.truth.values()) / sum(self.truth.values())


def measure(case: Case) -> Measured:
    """Run a case, and share it out on each basis."""
    run = run_case(case)
    gpus, config = float(case.on.gpus), AttributionConfig()
    model = true_model(run)
    overlapping = _by_window(run.timelines)
    without = {r.id: msgspec.structs.replace(r, token_times=()) for r in run.timelines}
    tenants = {r.id: r.tenant for r in run.timelines}
    bases = {basis: ReplicaAttribution("replica", config) for basis in BASES}
    found = {basis: Found() for basis in BASES}
    truth: dict[str, float] = defaultdict(float)
    windows = windows_again = 0
    for window in windows_of_steps(run):
        true, again = truth_of(window, model, gpus, config) if window.steps else ({}, False)
        windows += 1
        windows_again += again
        for request_id, gpu_ns in true.items():
            truth[tenants[request_id]] += gpu_ns
        requests = overlapping.get(window.start_ns // WINDOW_NS, [])
        for basis, attribution in bases.items():
            given = [without[r.id] for r in requests] if basis == "first_last" else requests
            steps = window.steps if basis == "steps" else ()
            _add(found[basis], basis, attribution, window, gpus, given, steps, true, again)
    total = sum(truth.values())
    real = {tenant: gpus * 1e9 * s for tenant, s in seconds_by_table(run).items()}
    return Measured(
        case=case,
        requests=len(run.timelines),
        truth=dict(truth),
        preempted_ratio=run.preempted_ratio,
        busy_ratio=run.result.replicas[0].busy_s / run.result.duration_s,
        windows=windows,
        windows_again=windows_again,
        found=found,
        two_price=worst_error(by_fitted_prices(run.timelines, total, gpus), truth),
        two_price_oracle=worst_error(by_true_prices(run.timelines, truth), truth),
        token_average=worst_error(by_average_rate(run.timelines, total), truth),
        by_table=worst_error(truth, real),
    )


def _add(
    found: Found,
    basis: str,
    attribution: ReplicaAttribution,
    window: Window,
    gpus: float,
    requests: Sequence[RequestTimeline],
    steps: Sequence[EngineStep],
    true: dict[int, int],
    again: bool,
) -> None:
    result = attribution.window(
        window.start_ns,
        window.end_ns,
        gpus=gpus,
        up_ns=WINDOW_NS,
        warmup_ns=0,
        requests=requests,
        steps=steps,
    )
    assert sum(s.gpu_ns for s in result.shares) + result.idle_ns == result.capacity_ns
    tenants = {r.id: r.tenant for r in requests}
    for share in result.shares:
        found.gpu_ns[tenants[share.request_id]] += share.gpu_ns
        found.inside += share.low_ns <= true.get(share.request_id, 0) <= share.high_ns
    found.shares += len(result.shares)
    found.flagged += result.saturated
    found.flagged_again += result.saturated and again
    found.others += result.basis != basis


def _by_window(timelines: Sequence[RequestTimeline]) -> dict[int, list[RequestTimeline]]:
    """Requests by the windows that they overlap."""
    windows: dict[int, list[RequestTimeline]] = defaultdict(list)
    for request in timelines:
        begin_ns = request.arrived_at_utc_ns
        end_ns = begin_ns + round((request.finished_s or 0.0) * 1e9)
        for number in range(begin_ns // WINDOW_NS, end_ns // WINDOW_NS + 1):
            windows[number].append(request)
    return windows
