"""What a gateway before a simulated engine writes is what its clients met."""

from __future__ import annotations

from random import Random

import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.timeline import RequestTimeline
from mileage.sim.engine_config import EngineConfig
from mileage.sim.gateway_record import GatewayRecord
from mileage.sim.node import ReplicaSpec
from mileage.sim.sim_config import SimConfig
from mileage.sim.simulation import SimResult, Simulation
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

_TABLE = linear_table((0.01, 1e-4, 1e-6, 5e-5, 0.0))
_UTC_NS = 1_800_000_000_000_000_000


def _run(
    requests: list[TraceRequest],
    record: GatewayRecord,
    *,
    kv_blocks: int = 400,
    patience_s: float | None = None,
) -> SimResult:
    engine = EngineConfig(kv_blocks=kv_blocks, running_max=8, step_tokens_max=128)
    return Simulation(
        [ReplicaSpec(name="r", engine=engine, table=_TABLE)],
        control=ControlConfig(governor=GovernorConfig(mode="off")),
        config=SimConfig(patience_s=patience_s),
        watcher=record,
    ).run(requests)


def _requests(count: int = 30) -> list[TraceRequest]:
    random = Random(5)
    return [
        TraceRequest(
            arrived_s=0.05 * number,
            prompt_tokens=random.randint(1, 300),
            output_tokens=random.randint(1, 60),
            tenant=random.choice(("a", "b")),
            prefix_blocks=(1, 2),
            block_tokens=16,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("kv_blocks", [pytest.param(400, id="room"), pytest.param(40, id="less")])
def test_token_times_are_those_of_the_engine(kv_blocks: int) -> None:
    requests, record = _requests(), GatewayRecord("m", started_at_utc_ns=_UTC_NS)
    result = _run(requests, record, kv_blocks=kv_blocks)
    assert (result.replicas[0].preemptions > 0) == (kv_blocks == 40)
    out = result.outcomes
    for row, (request, each) in enumerate(
        zip(requests, record.timelines(requests, result), strict=True)
    ):
        assert (each.id, each.tenant, each.outcome, each.replica) == (
            row + 1,
            request.tenant,
            "ok",
            "r",
        )
        assert each.arrived_at_utc_ns == _UTC_NS + round(request.arrived_s * 1e9)
        assert each.dispatched_s == 0.0
        assert each.cached_tokens == out.cached_tokens[row]
        times, counts = each.token_times[::2], each.token_times[1::2]
        assert sum(counts) == each.output_tokens == request.output_tokens
        assert list(times) == sorted(times)
        assert times[0] == pytest.approx(out.ttft_s[row] * 1e6, abs=1.0)
        assert times[-1] == pytest.approx(out.e2e_s[row] * 1e6, abs=1.0)
        assert each.first_token_s == pytest.approx(out.ttft_s[row])
        assert each.last_token_s == pytest.approx(out.e2e_s[row])
        if request.output_tokens > 1:
            mean_s = (times[-1] - times[0]) / 1e6 / (request.output_tokens - 1)
            assert mean_s == pytest.approx(out.itl_mean_s[row], abs=2e-6)


def test_an_engine_may_hide_what_it_found_in_its_cache() -> None:
    requests, record = _requests(), GatewayRecord("m")
    result = _run(requests, record)
    assert any(r.cached_tokens for r in record.timelines(requests, result))
    hidden = record.timelines(requests, result, hides_cached_tokens=True)
    assert all(r.cached_tokens is None for r in hidden)


def test_delays_keep_a_stream_in_order_and_are_the_same_for_a_seed() -> None:
    def timelines(seed: int) -> list[RequestTimeline]:
        requests = _requests()
        record = GatewayRecord("m", delay_mean_s=0.005, random=Random(seed))
        return record.timelines(requests, _run(requests, record))

    found = timelines(1)
    for each in found:
        times = each.token_times[::2]
        assert list(times) == sorted(times)
        assert each.first_token_s is not None
        assert each.last_token_s is not None
        assert each.finished_s is not None
        assert each.first_token_s <= each.last_token_s <= each.finished_s
    assert found == timelines(1)
    assert found != timelines(2)


def test_who_left_before_a_token_came_has_none() -> None:
    requests = [TraceRequest(arrived_s=0.0, prompt_tokens=6000, output_tokens=5)]
    record = GatewayRecord("m")
    result = _run(requests, record, patience_s=0.1)
    (each,) = record.timelines(requests, result)
    assert (each.outcome, each.status, each.token_times) == ("cancelled", None, ())
    assert each.finished_s == pytest.approx(0.1)
    assert each.first_token_s is None
    assert each.output_tokens is None
