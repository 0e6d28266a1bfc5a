"""Replicas that come and go: when they serve, what they cost, and what they forget."""

from __future__ import annotations

import math

import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.outcome import OK, REJECTED
from mileage.sim.scaling import (
    DRAINING,
    OFF,
    STARTING,
    UP,
    FleetView,
    Scaler,
    Scaling,
    ScalingConfig,
)
from mileage.sim.sim_config import SimConfig
from mileage.sim.sim_result import SimResult
from mileage.sim.simulation import Simulation
from mileage.sim.summary import summarise
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

_TABLE = linear_table((0.01, 0.0, 0.0, 1e-3, 0.0))
_ENGINE = EngineConfig(kv_blocks=500, running_max=8, step_tokens_max=64)


def _run(
    times_s: list[float],
    *schedule: tuple[float, int],
    replicas: int = 2,
    start_s: float = 5.0,
    output: int = 10,
    scaler: Scaler | None = None,
    blocks: tuple[int, ...] = (),
) -> SimResult:
    specs = [
        ReplicaSpec(name=f"r{i}", engine=_ENGINE, table=_TABLE, models=("m",), gpus=2.0)
        for i in range(replicas)
    ]
    requests = [
        TraceRequest(
            arrived_s=at_s,
            prompt_tokens=33,
            output_tokens=output,
            prefix_blocks=blocks,
            block_tokens=16 if blocks else 0,
        )
        for at_s in times_s
    ]
    config = SimConfig(scaling=ScalingConfig(start_s=start_s, schedule=schedule, interval_s=1.0))
    control = ControlConfig(governor=GovernorConfig(mode="off"))
    return Simulation(specs, control=control, config=config, scaler=scaler).run(requests)


def test_a_replica_serves_from_the_end_of_its_cold_start_on() -> None:
    result = _run([i * 0.5 for i in range(40)], (0.0, 1), (4.0, 2))
    served = dict(zip(result.outcomes.arrived_s, result.outcomes.replica, strict=True))
    assert {served[at_s] for at_s in served if at_s < 9.0} == {0}
    assert {served[at_s] for at_s in served if at_s >= 9.0} == {0, 1}
    # It is paid for from the request for it on.
    assert result.gpu_s == pytest.approx(2.0 * (2 * result.duration_s - 4.0))


def test_a_replica_that_is_scaled_down_ends_what_it_has_and_costs_until_then() -> None:
    result = _run([0.0, 0.1, 3.0, 20.0], (0.0, 2), (2.0, 1), output=500)
    assert list(result.outcomes.status) == [OK] * 4
    assert sorted(result.outcomes.replica)[:4] == [0, 0, 0, 1]
    at = list(result.outcomes.replica).index(1)
    ended_s = result.outcomes.arrived_s[at] + result.outcomes.e2e_s[at]
    assert 2.0 < ended_s < 6.0
    assert result.gpu_s == pytest.approx(2.0 * (result.duration_s + ended_s))


def test_without_any_replica_requests_are_refused() -> None:
    result = _run([0.0, 1.0, 8.0], (0.0, 0), (2.0, 1))
    assert list(result.outcomes.status) == [REJECTED, REJECTED, OK]
    assert set(result.rejections) <= {"no_replica", "model_not_found"}


def test_a_replica_that_was_off_has_an_empty_cache() -> None:
    times_s = [0.0, 1.0, 10.0, 11.0]
    kept = _run(times_s, (0.0, 1), replicas=1, blocks=(1, 2))
    lost = _run(times_s, (0.0, 1), (2.0, 0), (3.0, 1), replicas=1, blocks=(1, 2))
    assert list(kept.outcomes.cached_tokens) == [0, 32, 32, 32]
    assert list(lost.outcomes.cached_tokens) == [0, 32, 0, 32]


def test_a_scaling_function_decides_by_what_it_sees() -> None:
    seen: list[FleetView] = []

    def by_load(view: FleetView) -> int:
        seen.append(view)
        return max(1, math.ceil((view.running + view.waiting) / 4))

    times_s = [i * 0.02 for i in range(200)] + [30.0, 60.0]
    result = _run(times_s, (0.0, 1), replicas=4, start_s=0.5, output=100, scaler=by_load)
    assert [view.now_s for view in seen[:3]] == [0.0, 1.0, 2.0]
    assert seen[0].up == 1
    assert max(view.up for view in seen) == 4
    assert seen[-1].up == 1
    assert all(view.replicas_max == 4 for view in seen)
    assert set(result.outcomes.status) == {OK}
    assert result.gpu_s is not None
    assert 2.0 * result.duration_s < result.gpu_s < 0.5 * 4 * 2.0 * result.duration_s


def test_the_cost_is_that_of_the_time_that_replicas_were_there() -> None:
    half = _run([0.0, 100.0], (0.0, 1))
    full = _run([0.0, 100.0])
    one, two = (summarise(each, slo=Slo(), usd_per_gpu_hour=1.0) for each in (half, full))
    assert one.usd_per_mtok == pytest.approx((two.usd_per_mtok or 0.0) / 2)
    assert one.gpu_busy_ratio == pytest.approx(2 * two.gpu_busy_ratio)


def test_those_that_drain_come_back_before_others_start_and_starts_are_given_up_first() -> None:
    scaling = Scaling(ScalingConfig(schedule=((0.0, 2),)), 4)
    assert scaling.states == [UP, UP, OFF, OFF]
    assert scaling.want(1, 1.0) == [1]
    assert scaling.want(3, 2.0) == [1, 2]
    assert scaling.states == [UP, UP, STARTING, OFF]
    assert scaling.want(1, 5.0) == [2, 1]
    assert scaling.states == [UP, DRAINING, OFF, OFF]
    scaling.off(1, 6.0)
    assert scaling.on_s(10.0) == [10.0, 6.0, 3.0, 0.0]


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(((5.0, 1), (2.0, 2)), id="times that decrease"),
        pytest.param(((math.nan, 1),), id="no time"),
        pytest.param(((0.0, -1),), id="negative"),
        pytest.param(((0.0, 3),), id="more than there are"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(schedule: tuple[tuple[float, int], ...]) -> None:
    with pytest.raises(ConfigError, match=r"sim\.scaling\.schedule"):
        _run([0.0], *schedule)


def test_a_scaling_function_needs_its_settings() -> None:
    spec = ReplicaSpec(name="r", engine=_ENGINE, table=_TABLE)
    with pytest.raises(ConfigError, match=r"sim\.scaling"):
        Simulation([spec], control=ControlConfig(), scaler=lambda view: 1)
