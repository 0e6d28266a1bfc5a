"""The compiled path gives what the Python path gives: every time, count and sample, bit for bit."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig, LimitPolicyName
from mileage.core.errors import ConfigError, TraceError
from mileage.core.slo import SloConfig
from mileage.policy.limits.static import StaticConfig
from mileage.policy.routing import RoutingConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.fast.jit import MISSING
from mileage.sim.fast.run import run_fast
from mileage.sim.simulation import SimConfig, Simulation
from mileage.workload.columns import columns_of
from mileage.workload.trace_request import TraceRequest
from tests.support.fast_parity import ENGINE, both, fleet, same, traffic

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

OFF = ControlConfig(governor=GovernorConfig(mode="off"))
SEEDS = range(5)
_alter = msgspec.structs.replace


@pytest.mark.parametrize("lines", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_engine_without_limits(seed: int, lines: int) -> None:
    slow, fast = both(traffic(seed), fleet(lines=lines), OFF)
    assert sum(each.preemptions for each in slow.replicas) > 0
    same(slow, fast)


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(_alter(ENGINE, kv_blocks=80), id="few blocks: often preempted"),
        pytest.param(_alter(ENGINE, kv_blocks=5000), id="plenty of blocks"),
        pytest.param(_alter(ENGINE, block_tokens=1, kv_blocks=1500), id="blocks of one token"),
        pytest.param(_alter(ENGINE, step_tokens_max=40), id="small chunks"),
        pytest.param(
            _alter(ENGINE, long_prefill_tokens_max=24, whole_prompt_fits=False, kv_blocks=90),
            id="long prompts in small chunks, begun when the first one fits",
        ),
        pytest.param(_alter(ENGINE, watermark_ratio=0.1), id="a watermark"),
        pytest.param(_alter(ENGINE, running_max=3), id="three at once"),
        pytest.param(_alter(ENGINE, prefix_cache=False), id="no prefix cache"),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_engines_of_many_kinds(seed: int, engine: EngineConfig) -> None:
    same(*both(traffic(seed), fleet(2, engine, lines=2), OFF))


@pytest.mark.parametrize(
    ("block_tokens", "engine"),
    [
        pytest.param(16, ENGINE, id="blocks of the engine's own size"),
        pytest.param(64, _alter(ENGINE, kv_blocks=120), id="larger blocks, few of them"),
        pytest.param(8, ENGINE, id="smaller blocks, taken together"),
        pytest.param(
            32, _alter(ENGINE, kv_blocks=100, whole_prompt_fits=False), id="first chunk fits"
        ),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_prompts_that_begin_alike(seed: int, block_tokens: int, engine: EngineConfig) -> None:
    slow, fast = both(traffic(seed, block_tokens=block_tokens), fleet(2, engine), OFF)
    assert sum(each.prefix_hit_tokens for each in slow.replicas) > 0
    same(slow, fast)


@pytest.mark.parametrize("affinity", [True, False])
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_routing_among_replicas(seed: int, count: int, affinity: bool) -> None:
    control = _alter(OFF, routing=RoutingConfig(affinity=affinity, affinity_slack_s=0.05))
    requests = traffic(seed, 1500, rate=30.0 * count, block_tokens=16)
    config = SimConfig(seed=seed, scrape_interval_s=0.7, prompt_error_ratio=0.3)
    same(*both(requests, fleet(count), control, config))


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_that_are_seldom_asked_learn_from_their_views(seed: int) -> None:
    requests = traffic(seed, 400, rate=1.5)
    same(*both(requests, fleet(3), OFF, SimConfig(seed=seed, scrape_interval_s=2.0)))


@pytest.mark.parametrize("interval_s", [15.0, 45.0])
def test_views_become_too_old(interval_s: float) -> None:
    config = SimConfig(scrape_interval_s=interval_s)
    same(*both(traffic(1, 1500, rate=20.0), fleet(3), OFF, config))


def test_requests_that_fit_into_no_engine_fail() -> None:
    engine = _alter(ENGINE, kv_blocks=20)
    slow, fast = both(traffic(3, output_tokens=20), fleet(2, engine), OFF)
    assert 0 < slow.outcomes.status.count(2) < len(slow.outcomes)
    same(slow, fast)


def test_different_replicas() -> None:
    specs = [*fleet(1, lines=2), *fleet(2, _alter(ENGINE, kv_blocks=150, running_max=8))]
    named = [_alter(spec, name=f"n{i}", gpus=1.0 + i) for i, spec in enumerate(specs)]
    same(*both(traffic(2, 1000, block_tokens=16), named, OFF))


def test_an_empty_trace() -> None:
    same(*both([], fleet(2), OFF))


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(TraceRequest(arrived_s=0.0, prompt_tokens=0, output_tokens=1), id="no prompt"),
        pytest.param(TraceRequest(arrived_s=0.0, prompt_tokens=1, output_tokens=0), id="no answer"),
        pytest.param(TraceRequest(arrived_s=-1.0, prompt_tokens=1, output_tokens=1), id="too soon"),
    ],
)
def test_requests_that_no_trace_may_have_get_the_same_error(request_: TraceRequest) -> None:
    requests = [TraceRequest(arrived_s=0.0, prompt_tokens=1, output_tokens=1), request_]
    with pytest.raises(TraceError) as slow:
        Simulation(fleet(), control=OFF).run(requests)
    with pytest.raises(TraceError) as fast:
        run_fast(columns_of(requests), fleet(), OFF)
    assert str(slow.value) == str(fast.value)


def test_what_only_the_python_path_can_do_is_named() -> None:
    noisy = fleet(1, _alter(ENGINE, noise_ratio=0.1))
    with pytest.raises(ConfigError, match="noise"):
        both(traffic(1, 5), noisy, OFF)


# --- the governor ---------------------------------------------------------------------------------


def governed(policy: str, **changes: object) -> ControlConfig:
    governor = GovernorConfig(policy=policy, **changes)  # type: ignore[arg-type]
    return ControlConfig(governor=governor, slo=SloConfig(itl_s=0.03))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("policy", get_args(LimitPolicyName))
@pytest.mark.parametrize("seed", range(3))
def test_every_policy_of_limits(policy: str, seed: int, count: int) -> None:
    requests = traffic(seed, 1200, rate=40.0 * count, block_tokens=16)
    slow, fast = both(requests, fleet(count), governed(policy), SimConfig(seed=seed))
    assert len(set(slow.series.means("limit"))) > 1
    same(slow, fast)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"static": StaticConfig(limit=3)}, id="three at once: most are held"),
        pytest.param(
            {"static": StaticConfig(limit=2), "queue_max": 20}, id="a short queue: some refused"
        ),
        pytest.param(
            {"static": StaticConfig(limit=2), "queue_wait_max_s": 1.5}, id="some wait too long"
        ),
        pytest.param({"static": StaticConfig(limit=4), "queue_max": 0}, id="none may wait"),
        pytest.param({"period_s": 7.0, "static": StaticConfig(limit=4)}, id="rarely decided"),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_requests_are_held_and_refused(seed: int, count: int, changes: dict[str, object]) -> None:
    requests = traffic(seed, 600, rate=30.0 * count)
    slow, fast = both(requests, fleet(count), governed("static", **changes), SimConfig(seed=seed))
    assert (slow.series.peak("held") or 0.0) > 0.0 or changes.get("queue_max") == 0
    same(slow, fast)


@pytest.mark.parametrize("seed", range(3))
def test_targets_for_the_first_token_that_only_order(seed: int) -> None:
    control = governed("tail_memory", reject_late=False)
    control = _alter(control, slo=SloConfig(ttft_s=0.4, itl_s=0.05))
    same(*both(traffic(seed, 600, rate=60.0), fleet(2), control, SimConfig(seed=seed)))


@pytest.mark.parametrize("seed", range(3))
def test_what_fails_while_others_are_held(seed: int) -> None:
    engine = _alter(ENGINE, kv_blocks=22)
    control = governed("static", static=StaticConfig(limit=2))
    same(*both(traffic(seed, 400, output_tokens=20), fleet(2, engine), control))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("policy", get_args(LimitPolicyName))
@pytest.mark.parametrize("seed", range(3))
def test_what_would_be_late_is_refused(policy: str, seed: int, count: int) -> None:
    control = governed(policy, static=StaticConfig(limit=12))
    control = _alter(control, slo=SloConfig(ttft_s=0.6, itl_s=0.05))
    requests = traffic(seed, 1500, rate=35.0 * count, block_tokens=16)
    slow, fast = both(requests, fleet(count), control, SimConfig(seed=seed))
    assert policy != "static" or slow.rejections["deadline"] > 10
    same(slow, fast)
