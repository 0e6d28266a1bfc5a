"""The control inside one engine: set at a step's start, acknowledged, given back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.policy.engine_knobs import EngineKnobs
from mileage.vllm_plugin.engine_control import EngineControl, SetMessage
from tests.support.scheduler_versions import core_of, output_of


class World:
    """An engine that is busy, unless told else, and its control."""

    def __init__(self, **options: Any) -> None:
        self.core = core_of(**{"scheduler": {"running": ["a"]}, **options})
        self.scheduler = self.core.scheduler
        self.control = EngineControl(self.core, rank=0, boot="b")
        self.version = 0

    def ask(self, now_s: float = 0.0, lease_s: float | None = None, **knobs: int) -> bool:
        """The next request."""
        base, self.version = (self.version, "w" if self.version else ""), self.version + 1
        message = SetMessage(
            version=self.version, writer="w", base=base, knobs=EngineKnobs(**knobs), lease_s=lease_s
        )
        return self.control.set(message, now_s)

    def step(self, now_s: float = 0.0, output: Any = None) -> None:
        """One step of the engine."""
        self.control.before_step(self.core, now_s)
        self.control.after_step(self.core, output or output_of({}), None, 0, 0, 0)

    @property
    def in_force(self) -> tuple[int, int, int]:
        """What the scheduler reads."""
        long = self.scheduler.scheduler_config.long_prefill_token_threshold
        return self.scheduler.max_num_active_reqs, self.scheduler.max_num_scheduled_tokens, long


def test_a_busy_engine_takes_values_at_the_next_step_and_acknowledges_them_then() -> None:
    world = World()
    assert world.ask(active_max=2, step_tokens_max=96, long_prefill_tokens_max=48)
    state = world.control.state(0.0)
    assert (state.version, state.applied_version) == (1, 0)
    assert state.applied == EngineKnobs(
        active_max=64, step_tokens_max=2048, long_prefill_tokens_max=0
    )
    assert world.in_force == (64, 2048, 0)
    world.step()
    assert world.in_force == (2, 96, 48)
    state = world.control.state(0.0)
    assert state.applied_version == 1
    assert state.applied.step_tokens_max == 96


def test_an_idle_engine_acknowledges_when_asked() -> None:
    world = World(scheduler={})
    world.ask(active_max=2)
    assert world.control.state(0.0).applied_version == 1
    assert world.scheduler.max_num_active_reqs == 2


def test_of_values_within_one_step_only_the_last_is_in_force() -> None:
    world = World()
    for cap in (2, 3, 4):
        world.ask(active_max=cap)
    world.step()
    assert world.scheduler.max_num_active_reqs == 4
    assert world.control.state(0.0).applied_version == 3


def test_what_did_not_know_the_last_request_is_not_taken() -> None:
    world = World()
    world.ask(active_max=2)
    late = SetMessage(
        version=2, writer="z", base=(0, ""), knobs=EngineKnobs(active_max=9), lease_s=None
    )
    assert not world.control.set(late, 0.0)
    same = msgspec.structs.replace(late, version=1, writer="a", base=(1, "w"))
    assert not world.control.set(same, 0.0)
    assert world.control.set(msgspec.structs.replace(late, base=(1, "w")), 0.0)
    assert world.control.state(0.0).requested == EngineKnobs(active_max=9)


def test_a_rank_that_is_behind_takes_all_of_it() -> None:
    world = World()
    message = SetMessage(
        version=7, writer="w", base=(6, "v"), knobs=EngineKnobs(active_max=9), lease_s=None
    )
    assert world.control.set(message, 0.0)


def test_the_start_values_come_back_when_nobody_renews() -> None:
    world = World()
    world.ask(now_s=100.0, lease_s=10.0, active_max=2, step_tokens_max=96)
    world.step(101.0)
    world.step(109.9)
    assert world.in_force[:2] == (2, 96)
    assert world.control.state(105.0).lease_left_s == 5.0
    world.step(110.0)
    assert world.in_force == (64, 2048, 0)
    state = world.control.state(110.0)
    assert (state.reverted, state.requested, state.lease_left_s) == (True, EngineKnobs(), None)
    world.ask(now_s=111.0, lease_s=10.0, active_max=3)
    world.step(111.0)
    assert not world.control.state(111.0).reverted
    assert world.scheduler.max_num_active_reqs == 3


def test_a_lease_runs_out_in_an_idle_engine_too() -> None:
    world = World(scheduler={})
    world.ask(now_s=0.0, lease_s=10.0, active_max=2)
    world.control.state(1.0)
    state = world.control.state(11.0)
    assert state.reverted
    assert world.scheduler.max_num_active_reqs == 64


def test_a_renewed_lease_keeps_the_values() -> None:
    world = World()
    for now_s in range(0, 100, 5):
        world.ask(now_s=now_s, lease_s=10.0, active_max=2)
        world.step(now_s + 4.0)
        assert world.scheduler.max_num_active_reqs == 2


def test_what_is_out_of_range_is_clamped_and_told_at_once() -> None:
    world = World()
    world.ask(active_max=10**9, step_tokens_max=0)
    clamped = world.control.state(0.0).clamped
    assert {name: each.applied for name, each in clamped.items()} == {
        "active_max": 64,
        "step_tokens_max": 1,
    }


def test_the_slots_of_the_runner_are_never_touched() -> None:
    world = World()
    before = (world.scheduler.max_num_running_reqs, world.scheduler.scheduler_config.max_num_seqs)
    for cap in (-1, 1, 64, 10**9):
        world.ask(active_max=cap, step_tokens_max=cap)
        world.step()
    after = (world.scheduler.max_num_running_reqs, world.scheduler.scheduler_config.max_num_seqs)
    assert before == after == (64, 64)
    assert world.scheduler.scheduler_config.max_num_batched_tokens == 2048


def test_an_older_engine_changes_what_it_has() -> None:
    world = World(without=("max_num_active_reqs",))
    world.ask(active_max=2, step_tokens_max=96)
    world.step()
    assert world.scheduler.max_num_scheduled_tokens == 96
    assert not hasattr(world.scheduler, "max_num_active_reqs")
    state = world.control.state(0.0)
    assert state.applied == EngineKnobs(step_tokens_max=96, long_prefill_tokens_max=0)
    assert state.clamped["active_max"].applied is None


def test_a_budget_below_what_decodes_lets_each_have_its_token() -> None:
    world = World(scheduler={"running": list("abcdefghij"), "num_spec_tokens": 1})
    world.ask(step_tokens_max=4)
    world.step()
    assert world.scheduler.max_num_scheduled_tokens == 20
    world.scheduler.running = ["a"]
    world.step()
    assert world.scheduler.max_num_scheduled_tokens == 4


def test_a_budget_has_room_for_a_block_where_prompts_are_cut_at_blocks() -> None:
    blocks = {"need_mamba_block_aligned_split": True}
    world = World(scheduler={"running": list("abcdefghij"), **blocks})
    world.ask(step_tokens_max=4)
    world.step()
    # The lowest is 17, a token and a block: beside ten that decode no prompt would go on.
    assert world.control.state(0.0).applied.step_tokens_max == 17
    assert world.scheduler.max_num_scheduled_tokens == 26
    assert world.control.state(0.0).prompt_block_tokens == 16
    assert World().control.state(0.0).prompt_block_tokens is None


def test_one_that_failed_sets_everything_back_and_changes_nothing_more() -> None:
    world, policy = World(), Policy()
    world.control.step_policy = lambda: policy
    assert ask_policy(world, 1, {"budget": "model"})
    world.version = 1
    world.ask(now_s=0.0, lease_s=10.0, active_max=2, step_tokens_max=96, waiting_max=3)
    world.step()
    assert world.in_force[:2] == (2, 96)
    world.control.give_up("KeyError at x.py:1 (y)")
    assert world.in_force == (64, 2048, 0)
    assert (policy.asked[-1], policy.bounds[-1]) == ({"began": "with"}, EngineKnobs())
    state = world.control.state(0.0)
    assert (state.failed, state.reverted) == ("KeyError at x.py:1 (y)", True)
    assert (state.requested, state.lease_left_s) == (EngineKnobs(), None)
    # It is busy and sees no step: what is asked for is acknowledged, and told as not taken.
    assert world.ask(active_max=3, waiting_max=1)
    state = world.control.state(1.0)
    assert state.version == state.applied_version == 3
    assert {clamp.applied for clamp in state.clamped.values()} == {None}
    assert "has failed: KeyError at x.py:1 (y)" in state.clamped["active_max"].reason
    assert set(state.capabilities.values()) == {state.clamped["waiting_max"].reason}
    assert (world.in_force, state.lease_s) == ((64, 2048, 0), None)
    with pytest.raises(ConfigError, match="has failed"):
        ask_policy(world, 4, {"budget": "model"})
    assert ask_policy(world, 5, None)


def test_steps_are_counted_since_the_values_changed() -> None:
    world = World()
    world.step(output=output_of({"a": 900, "b": 100}))
    state = world.control.state(0.0)
    assert (state.step_tokens_seen_max, state.prefill_tokens_step_max) == (1000, 1000)
    world.ask(step_tokens_max=96)
    world.step(output=output_of({"c": 50}, {"a": (30, 0), "b": (1, 4)}))
    world.ask(step_tokens_max=96)
    world.step(output=output_of({}, {"a": (1, 1), "b": (1, 5)}))
    state = world.control.state(0.0)
    assert (state.step_tokens_seen_max, state.prefill_tokens_step_max) == (81, 80)
    assert (state.running_seen_max, state.steps_total) == (3, 3)


def test_where_decodes_are_not_told_apart_the_prompts_tokens_are_missing() -> None:
    world = World()
    world.step(output=output_of({}, {"a": (30, 0)}, counts=False))
    state = world.control.state(0.0)
    assert (state.step_tokens_seen_max, state.prefill_tokens_step_max) == (30, None)


class Policy:
    """Remembers what it was told; refuses one that has no name."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any] | None] = []
        self.bounds: list[EngineKnobs] = []

    def ask(self, document: dict[str, Any] | None) -> None:
        if document == {}:
            raise ConfigError("policy", document, "a name")
        self.asked.append(document)

    def lapse(self) -> None:
        self.asked.append({"began": "with"})

    def bound_by(self, knobs: EngineKnobs) -> None:
        self.bounds.append(knobs)

    def document(self) -> dict[str, Any] | None:
        return self.asked[-1] if self.asked else None


def ask_policy(world: World, version: int, document: dict[str, Any] | None) -> bool:
    """A request for a policy with a cap."""
    knobs = EngineKnobs(active_max=version)
    message = SetMessage(
        version=version, writer="w", base=(99, ""), knobs=knobs, lease_s=10.0, policy=document
    )
    return world.control.set(message, 0.0)


def test_a_policy_is_asked_and_bound_by_the_knobs_and_told_when_the_lease_ends() -> None:
    world, policy = World(), Policy()
    world.control.step_policy = lambda: policy
    assert ask_policy(world, 1, {"budget": "model"})
    world.step(1.0)
    assert policy.bounds == [EngineKnobs(active_max=1)]
    assert world.control.state(1.0).policy == {"budget": "model"}
    with pytest.raises(ConfigError):
        ask_policy(world, 2, {})
    assert world.control.state(1.0).version == 1
    world.step(10.0)
    assert policy.asked == [{"budget": "model"}, {"began": "with"}]
    assert policy.bounds[-1] == EngineKnobs()


def test_without_a_place_for_policies_one_is_refused() -> None:
    world = World()
    with pytest.raises(ConfigError, match="no policy can run"):
        ask_policy(world, 1, {"budget": "model"})
    assert ask_policy(world, 1, None)
