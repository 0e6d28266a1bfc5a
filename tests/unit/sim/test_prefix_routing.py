"""Routing by prefixes before simulated engines: more is hit than in turn, and loads stay even."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.control.snapshot import dump_state, restore_state
from mileage.core.actions import Dispatch
from mileage.core.events import Arrived
from mileage.core.request import Request
from mileage.policy.routing import RoutingConfig, RoutingPolicyName
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.sim_result import SimResult
from mileage.sim.simulation import Simulation
from mileage.workload.synthetic.config import ConversationsConfig, PrefixesConfig, SyntheticConfig
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.lengths import LognormalLength
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

TABLE = linear_table((0.01, 1e-4, 1e-7, 5e-5, 0.0))
ENGINE = EngineConfig(kv_blocks=3000, running_max=64, step_tokens_max=512)


@lru_cache(maxsize=1)
def conversations() -> tuple[TraceRequest, ...]:
    """Conversations behind four system prompts: more than one cache holds."""
    config = SyntheticConfig(
        rate_rps=8.0,
        requests=1200,
        seed=3,
        block_tokens=64,
        prompt=LognormalLength(median=300, sigma=0.6),
        output=LognormalLength(median=20, sigma=0.3),
        conversations=ConversationsConfig(turns=6, think_s=10),
        prefixes=PrefixesConfig(count=4, tokens=LognormalLength(median=500, sigma=0.2)),
    )
    return tuple(generate(config))


def simulation(policy: RoutingPolicyName, replicas: int = 2) -> Simulation:
    control = ControlConfig(
        governor=GovernorConfig(mode="off"), routing=RoutingConfig(policy=policy)
    )
    specs = [ReplicaSpec(name=f"r{i}", engine=ENGINE, table=TABLE) for i in range(replicas)]
    return Simulation(specs, control=control)


def hit_ratio(result: SimResult) -> float:
    hits = sum(each.prefix_hit_tokens for each in result.replicas)
    return hits / sum(each.prefix_query_tokens for each in result.replicas)


def max_over_mean(values: Sequence[float]) -> float:
    return max(values) * len(values) / sum(values)


def test_more_is_hit_than_in_turn_and_no_replica_does_much_more_than_the_other() -> None:
    requests = conversations()
    in_turn = simulation("round_robin").run(requests)
    ours = simulation("prefix").run(requests)
    assert hit_ratio(ours) > 1.2 * hit_ratio(in_turn)
    computed = [each.prefill_tokens + each.output_tokens for each in ours.replicas]
    assert max_over_mean(computed) <= 1.3
    assert max_over_mean([each.finished for each in ours.replicas]) <= 1.3


def test_it_is_the_same_again() -> None:
    requests = conversations()[:300]
    first, again = (simulation("prefix").run(requests) for _ in range(2))
    assert list(first.outcomes.replica) == list(again.outcomes.replica)


def test_what_it_has_learned_is_in_a_snapshot() -> None:
    ours = simulation("prefix", 3)
    ours.run(conversations()[:300])
    restored = restore_state(dump_state(ours.controller), "test")
    assert isinstance(restored, Controller)
    random = Random(5)
    for number, trace in enumerate(random.sample(conversations()[:300], 60), 10_000):
        blocks = trace.prefix_blocks[: trace.prompt_tokens // trace.block_tokens]
        request = Request(
            number,
            "default",
            "model",
            "chat",
            True,
            1000.0,
            trace.prompt_tokens,
            prefix_blocks=blocks,
            prefix_block_tokens=trace.block_tokens,
        )
        actions = ours.controller.handle(Arrived(request), 1000.0)
        assert actions == restored.handle(Arrived(request), 1000.0)
        assert isinstance(actions[0], Dispatch)
