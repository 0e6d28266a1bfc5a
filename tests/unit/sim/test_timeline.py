"""A result over time: every request in its bin, and quantiles that are exact."""

from __future__ import annotations

import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.measure.quantiles import quantile
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.simulation import SimConfig, SimResult, Simulation
from mileage.sim.timeline import timeline_of
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table


def _result(count: int = 300, gap_s: float = 0.1) -> SimResult:
    spec = ReplicaSpec(
        name="a",
        engine=EngineConfig(kv_blocks=1000, running_max=16, step_tokens_max=128),
        table=linear_table((0.01, 1e-4, 1e-6, 5e-5, 0.0)),
    )
    simulation = Simulation(
        [spec],
        control=ControlConfig(governor=GovernorConfig(mode="off")),
        config=SimConfig(scrape_interval_s=0.5),
    )
    return simulation.run(
        TraceRequest(arrived_s=7.0 + i * gap_s, prompt_tokens=50 + i, output_tokens=1 + i % 40)
        for i in range(count)
    )


@pytest.mark.parametrize("bins_max", [1, 7, 1000])
def test_every_request_is_in_one_bin(bins_max: int) -> None:
    timeline = timeline_of(_result(), bins_max=bins_max)
    assert len(timeline.time_s) <= bins_max
    assert timeline.time_s[0] == 7.0
    assert sum(timeline.arrivals) == sum(timeline.completions) == 300
    assert sum(timeline.unanswered) == 0
    assert sum(timeline.output_tokens) == sum(1 + i % 40 for i in range(300))
    lengths = {len(column) for column in timeline.fleet.values()}
    lengths |= {len(c) for columns in timeline.latency_s.values() for c in columns.values()}
    assert lengths == {len(timeline.time_s)}


def test_quantiles_are_of_the_requests_that_came_in_the_bin() -> None:
    result = _result()
    timeline = timeline_of(result, bins_max=10)
    out = result.outcomes
    for index, start_s in enumerate(timeline.time_s):
        inside = [
            ttft
            for arrived, ttft in zip(out.arrived_s, out.ttft_s, strict=True)
            if start_s <= arrived < start_s + timeline.width_s
        ]
        assert timeline.latency_s["ttft"]["p95"][index] == quantile(inside, 0.95)


def test_the_fleets_state_is_the_mean_of_its_samples() -> None:
    result = _result()
    timeline = timeline_of(result, bins_max=1)
    assert timeline.fleet["running"][0] == pytest.approx(result.series.mean("running"))
    assert timeline.fleet["busy_ratio"][0] == pytest.approx(result.series.mean("busy_ratio"))


def test_a_bin_in_which_nothing_came_has_no_latency() -> None:
    timeline = timeline_of(_result(2, gap_s=20.0), bins_max=1000)
    assert None in timeline.latency_s["ttft"]["p50"]


def test_an_empty_result_has_one_empty_bin() -> None:
    timeline = timeline_of(_result(0))
    assert timeline.arrivals == (0,)
    assert timeline.latency_s["e2e"]["p50"] == (None,)
