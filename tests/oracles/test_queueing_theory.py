"""The simulator against queueing theory: one server, mean waits, and Little's law."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.simulation import SimConfig, SimResult, Simulation
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

_STEP_S = 1e-3
"""Each step takes this long, whatever is in it: n tokens are n steps, the prompt's included."""
_SERVICE_STEPS = 100


def _run(requests: Iterator[TraceRequest], *, running_max: int, replicas: int = 1) -> SimResult:
    table = linear_table((_STEP_S, 0.0, 0.0, 0.0, 0.0), requests_max=running_max)
    engine = EngineConfig(kv_blocks=10**6, running_max=running_max, step_tokens_max=512)
    simulation = Simulation(
        [ReplicaSpec(name=f"r{i}", engine=engine, table=table) for i in range(replicas)],
        control=ControlConfig(governor=GovernorConfig(mode="off")),
        config=SimConfig(scrape_interval_s=1000.0),
    )
    return simulation.run(requests)


def _poisson(random: Random, rate: float, count: int, outputs: list[int]) -> Iterator[TraceRequest]:
    now_s = 0.0
    for index in range(count):
        now_s += random.expovariate(rate)
        yield TraceRequest(arrived_s=now_s, prompt_tokens=1, output_tokens=outputs[index])


def _mean_wait_s(result: SimResult) -> float:
    """Mean time before the first step of a request begins."""
    return float(np.mean(np.array(result.outcomes.ttft_s))) - _STEP_S


def test_mean_wait_of_deterministic_service_is_that_of_m_d_1() -> None:
    load, count, waits = 0.6, 15_000, []
    service_s = _SERVICE_STEPS * _STEP_S
    for seed in range(3):
        requests = _poisson(Random(seed), load / service_s, count, [_SERVICE_STEPS] * count)
        waits.append(_mean_wait_s(_run(requests, running_max=1)))
    expected = load * service_s / (2 * (1 - load))  # Pollaczek-Khinchine, no variance
    assert np.mean(waits) == pytest.approx(expected, rel=0.02)
