"""Cases of the attribution's benchmark: an engine, its load, and what it tells the gateway."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from benchmarks.support.attribution_traffic import traffic
from benchmarks.support.policy_cells import PAIRINGS, Pairing, table_of
from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.timeline import RequestTimeline
from mileage.sim.engine_config import EngineConfig
from mileage.sim.gateway_record import GatewayRecord
from mileage.sim.node import ReplicaSpec
from mileage.sim.sim_config import SimConfig
from mileage.sim.sim_result import SimResult
from mileage.sim.simulation import Simulation
from mileage.sim.step_log import Stretch, Watcher
from mileage.workload.trace_request import TraceRequest

__all__ = ["CASES", "SATURATED", "Case", "Run", "run_case", "simulate_case"]

DURATION_S = 1800.0
NOISE_RATIO = 0.03
DELAY_MEAN_S = 0.0005
"""Of a token's way from the engine to the gateway."""
_IN_FLIGHT_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Case:
    """One run of half an hour."""

    pairing: str
    step_tokens: int
    scale: float
    """Of the traffic's basic rates."""
    hidden: bool = False
    """The engine does not tell what it found in its cache."""
    seed: int = 1
    hurry: float = 1.0
    """The same requests come in so many times less time: they queue up."""

    @property
    def on(self) -> Pairing:
        """The model and its GPUs."""
        return PAIRINGS[self.pairing]

    @property
    def name(self) -> str:
        """For people."""
        cache = ", hidden hits" if self.hidden else ""
        hurry = f", {self.hurry:g} times as fast" if self.hurry != 1.0 else ""
        return f"{self.pairing} {self.step_tokens} x{self.scale:g}{cache}{hurry}"

    def requests(self, tenants: Iterable[str] | None = None) -> list[TraceRequest]:
        """What comes; of these tenants alone."""
        requests = traffic(self.scale, DURATION_S, self.seed, tenants)
        if self.hurry == 1.0:
            return requests
        return [replace(r, arrived_s=r.arrived_s / self.hurry) for r in requests]

    def replica(self, noise_ratio: float = NOISE_RATIO) -> ReplicaSpec:
        """The engine."""
        running = min(self.on.running, self.step_tokens)
        config = EngineConfig(
            kv_blocks=self.on.kv_blocks(self.step_tokens, running),
            running_max=running,
            step_tokens_max=self.step_tokens,
            noise_ratio=noise_ratio,
        )
        return ReplicaSpec(
            name="replica", engine=config, table=table_of(self.on), gpus=float(self.on.gpus)
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a case: what a gateway saw, and what it did not see."""

    case: Case
    timelines: list[RequestTimeline]
    stretches: list[Stretch]
    result: SimResult

    @property
    def preempted_ratio(self) -> float:
        """Of the requests, those that lost what was computed of them."""
        preemptions = self.result.outcomes.preemptions
        return sum(map(bool, preemptions)) / len(preemptions)


class _Both:
    """Keeps all stretches, and the gateway's record."""

    def __init__(self, record: GatewayRecord) -> None:
        self.record = record
        self.stretches: list[Stretch] = []

    def dispatched(self, request_id: int, replica: str, now_s: float) -> None:
        self.record.dispatched(request_id, replica, now_s)

    def stepped(self, replica: str, stretch: Stretch) -> None:
        self.stretches.append(stretch)
        self.record.stepped(replica, stretch)


def simulate_case(
    case: Case,
    requests: list[TraceRequest],
    *,
    noise_ratio: float = NOISE_RATIO,
    watcher: Watcher | None = None,
) -> SimResult:
    """Requests go to the engine as they come."""
    return Simulation(
        [case.replica(noise_ratio)],
        control=ControlConfig(governor=GovernorConfig(mode="off")),
        config=SimConfig(seed=case.seed, in_flight_max=_IN_FLIGHT_MAX),
        watcher=watcher,
    ).run(requests)


def run_case(case: Case, noise_ratio: float = NOISE_RATIO) -> Run:
    """All of a case."""
    requests = case.requests()
    record = GatewayRecord("model", delay_mean_s=DELAY_MEAN_S, random=Random(case.seed))
    both = _Both(record)
    result = simulate_case(case, requests, noise_ratio=noise_ratio, watcher=both)
    timelines = record.timelines(requests, result, hides_cached_tokens=case.hidden)
    return Run(case, timelines, both.stretches, result)


_LEVELS = {
    ("A10", 256): (0.5, 1.0),
    ("A10", 2048): (0.5, 0.8),
    ("A100", 256): (0.35, 0.7),
    ("A100", 2048): (0.35, 0.65),
    ("H100", 256): (2.8, 4.0),
    ("H100", 8192): (4.0, 9.0),
}
CASES = tuple(
    Case(pairing, step_tokens, scale, hidden=hidden, seed=11 * number + (5 if hidden else 0) + 1)
    for number, ((pairing, step_tokens), scales) in enumerate(_LEVELS.items())
    for scale in scales
    for hidden in (False, True)
)
"""Under 1 % of requests are preempted, and each tenant has at least a tenth of the cost."""
SATURATED = (
    Case("A10", 256, 1.8, seed=101),
    Case("A10", 2048, 1.5, seed=102),
    Case("A100", 256, 1.3, seed=103),
    Case("A100", 2048, 1.0, seed=104),
)
"""More than the KV cache has room for."""
