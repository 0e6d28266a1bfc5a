"""Policies inside an engine: what they see of its queues, what is set, and what is set back."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.engine_knobs import EngineKnobs
from mileage.vllm_plugin.policy_host import PolicyHost
from mileage.vllm_plugin.policy_settings import PolicySettings
from tests.support.toy_scheduler import ToyEngine, ToyRequest, ToyScheduler, policy_host

TARGET_S = 0.04
BUDGET = PolicySettings(budget="model", itl_target_s=TARGET_S, ttft_target_s=2.0)


def jobs(seed: int = 1, count: int = 120) -> list[tuple[float, int, int]]:
    """Short prompts, and now and then a long one."""
    random = Random(seed)
    found, at_s = [], 0.0
    for _ in range(count):
        at_s += random.expovariate(4.0)
        prompt = random.randint(1500, 3000) if random.random() < 0.15 else random.randint(20, 80)
        found.append((at_s, prompt, random.randint(20, 60)))
    return found


def gaps(requests: list[ToyRequest]) -> list[float]:
    """Between all tokens, ascending."""
    return sorted(b - a for request in requests for a, b in pairwise(request.tokens_at))


def run(settings: PolicySettings | None) -> tuple[list[ToyRequest], ToyEngine]:
    scheduler = ToyScheduler()
    engine = ToyEngine(scheduler, policy_host(scheduler, settings))
    return engine.run(jobs()), engine


def test_gaps_keep_the_target_that_the_engine_alone_misses() -> None:
    plain, alone = run(None)
    governed, engine = run(BUDGET)
    assert gaps(plain)[-1] > 4 * TARGET_S
    late = [gap for gap in gaps(governed) if gap > TARGET_S]
    assert len(late) < 0.01 * len(gaps(governed))
    assert max(engine.beside) < max(alone.beside) / 4
    assert engine.now_s < 1.1 * alone.now_s
    told = engine.host.document()
    assert told is not None
    assert told["mixed_steps"] > 100
    assert told["mixed_prefill_tokens"] / told["mixed_steps"] < max(engine.beside)
    assert all(len(request.tokens_at) == request.max_tokens for request in governed)


def test_off_nothing_is_changed() -> None:
    _, engine = run(None)
    assert engine.scheduler.max_num_scheduled_tokens == 2048
    assert engine.host.document() is None


def deciding(settings: PolicySettings = BUDGET) -> tuple[ToyScheduler, PolicyHost, ToyEngine]:
    """An engine whose policy knows how long steps take."""
    scheduler = ToyScheduler()
    host = policy_host(scheduler, settings)
    engine = ToyEngine(scheduler, host)
    engine.run(jobs())
    return scheduler, host, engine


def with_a_long_prompt(scheduler: ToyScheduler, engine: ToyEngine, decoding: int = 4) -> None:
    """Some that decode, and a long prompt that waits."""
    for i in range(decoding):
        scheduler.add(ToyRequest(f"short{i}", 20, 1000, engine.now_s))
    engine.step()
    engine.step()
    scheduler.add(ToyRequest("long", 50_000, 10, engine.now_s))


def test_a_long_prompt_gets_what_the_target_leaves() -> None:
    scheduler, host, engine = deciding()
    with_a_long_prompt(scheduler, engine)
    host.begin(engine.now_s, 0.0)
    # (0.9 * 40 ms - 10 ms) / 0.1 ms, less those that decode
    assert scheduler.max_num_scheduled_tokens == pytest.approx(260, abs=10)
    told = host.document()
    assert told is not None
    assert told["prefill_tokens"] == scheduler.max_num_scheduled_tokens - 4


def test_where_nothing_decodes_a_prompt_gets_all() -> None:
    scheduler, host, engine = deciding()
    scheduler.add(ToyRequest("long", 50_000, 10, engine.now_s))
    host.begin(engine.now_s, 0.0)
    assert scheduler.max_num_scheduled_tokens == 2048


@pytest.mark.parametrize("off", [None, PolicySettings(limits="model")])
def test_switched_off_the_start_value_comes_back(off: PolicySettings | None) -> None:
    scheduler, host, engine = deciding()
    with_a_long_prompt(scheduler, engine)
    host.begin(engine.now_s, 0.0)
    assert scheduler.max_num_scheduled_tokens < 2048
    host.configure(off)
    assert scheduler.max_num_scheduled_tokens == 2048


def test_a_bound_set_by_hand_holds() -> None:
    scheduler, host, engine = deciding()
    with_a_long_prompt(scheduler, engine)
    host.bound_by(EngineKnobs(step_tokens_max=96))
    host.begin(engine.now_s, 0.0)
    assert scheduler.max_num_scheduled_tokens == 96
    host.configure(None)
    assert scheduler.max_num_scheduled_tokens == 96


def test_a_bound_below_those_that_decode_starves_none() -> None:
    scheduler, host, engine = deciding()
    with_a_long_prompt(scheduler, engine, decoding=8)
    host.bound_by(EngineKnobs(step_tokens_max=3))
    host.begin(engine.now_s, 0.0)
    assert scheduler.max_num_scheduled_tokens == 8


def test_a_prompt_in_the_middle_comes_behind_those_that_decode() -> None:
    scheduler, host, engine = deciding()
    with_a_long_prompt(scheduler, engine)
    engine.step()
    scheduler.running.sort(key=lambda request: not request.is_prefill_chunk)
    assert scheduler.running[0].request_id == "long"
    host.begin(engine.now_s, 0.0)
    names = [request.request_id for request in scheduler.running]
    assert names == ["short0", "short1", "short2", "short3", "long"]


def test_a_failure_sets_everything_back_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, host, engine = deciding()
    with_a_long_prompt(scheduler, engine)
    host.begin(engine.now_s, 0.0)
    assert host.budget is not None
    monkeypatch.setattr(type(host.budget), "tokens", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        host.begin(engine.now_s, 0.0)
    assert scheduler.max_num_scheduled_tokens == 2048
    assert host.settings is None
    assert (host.document() or {})["failed"].startswith("budget=model: ZeroDivisionError at ")
    assert host.failed == BUDGET
    host.configure(None)
    assert [host.document(), host.failed] == [None, None]


@pytest.mark.parametrize(
    ("broken", "who"),
    [
        pytest.param("mileage.vllm_plugin.limit_host.LimitHost.update", "limits=aimd", id="limits"),
        pytest.param(
            "mileage.vllm_plugin.policy_host.read_running",
            "budget=model, limits=aimd",
            id="none of them",
        ),
    ],
)
def test_the_policy_whose_turn_it_was_is_named(
    monkeypatch: pytest.MonkeyPatch, broken: str, who: str
) -> None:
    host = policy_host(
        ToyScheduler(), PolicySettings(budget="model", limits="aimd", itl_target_s=1)
    )
    monkeypatch.setattr(broken, lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        host.begin(0.0, 0.0)
    assert (host.document() or {})["failed"].startswith(f"{who}: ZeroDivisionError at ")


def test_one_that_cannot_be_made_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, host, engine = deciding()
    with_a_long_prompt(scheduler, engine)
    host.begin(engine.now_s, 0.0)
    budget, tokens = host.budget, scheduler.max_num_scheduled_tokens
    monkeypatch.setattr("mileage.vllm_plugin.policy_host.LimitHost", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        host.configure(PolicySettings(budget="fixed", limits="volatility"))
    assert (host.settings, host.budget) == (BUDGET, budget)
    assert scheduler.max_num_scheduled_tokens == tokens < 2048


def test_a_limit_begun_below_a_bound_rises_when_the_bound_is_gone() -> None:
    scheduler = ToyScheduler(running_max=32)
    host = policy_host(scheduler)
    host.bound_by(EngineKnobs(active_max=2))
    host.configure(PolicySettings(limits="aimd", itl_target_s=1.0))
    engine = ToyEngine(scheduler, host)
    engine.run([(0.02 * i, 1, 40) for i in range(40)])
    assert scheduler.max_num_active_reqs == 2
    host.bound_by(EngineKnobs())
    engine.run([(engine.now_s + 0.02 * i, 1, 40) for i in range(400)])
    assert scheduler.max_num_active_reqs > 2


def test_a_bound_set_by_hand_leaves_a_lower_limit_in_force() -> None:
    scheduler = ToyScheduler(running_max=32)
    host = policy_host(scheduler, PolicySettings(limits="aimd", itl_target_s=0.0001))
    engine = ToyEngine(scheduler, host)
    engine.run([(0.02 * i, 1, 40) for i in range(200)])
    limit = scheduler.max_num_active_reqs
    assert limit < 16
    # As the control does it: the scheduler first, and then the policies.
    scheduler.max_num_active_reqs = 32
    host.bound_by(EngineKnobs(waiting_max=5))
    assert scheduler.max_num_active_reqs == limit
    scheduler.max_num_active_reqs = 1
    host.bound_by(EngineKnobs(active_max=1))
    assert scheduler.max_num_active_reqs == 1


BLOCK = 256


def with_blocks() -> tuple[ToyScheduler, PolicyHost, ToyEngine]:
    """An engine that cuts prompts at whole blocks only."""
    scheduler = ToyScheduler(prompt_block=BLOCK)
    host = policy_host(scheduler, BUDGET)
    return scheduler, host, ToyEngine(scheduler, host)


def test_prompts_that_are_cut_at_blocks_have_room_for_one_in_each_step() -> None:
    scheduler, host, engine = with_blocks()
    # Each step has its tokens, or the toy engine says that nothing goes on.
    requests = engine.run(jobs())
    assert all(len(request.tokens_at) == request.max_tokens for request in requests)
    with_a_long_prompt(scheduler, engine, decoding=20)
    host.bound_by(EngineKnobs(step_tokens_max=BLOCK + 1))
    host.begin(engine.now_s, 0.0)
    assert scheduler.max_num_scheduled_tokens == BLOCK + 20
    engine.step()
    assert scheduler.requests["long"].num_computed_tokens == BLOCK


def test_what_an_engine_cannot_have_is_told() -> None:
    scheduler = ToyScheduler()
    scheduler.scheduler_config.enable_chunked_prefill = False
    del scheduler.max_num_active_reqs
    settings = PolicySettings(budget="model", limits="model", itl_target_s=1.0)
    host = policy_host(scheduler, settings)
    scheduler.add(ToyRequest("a", 10, 10))
    host.begin(0.0, 0.0)
    told = host.document()
    assert told is not None
    assert set(told["unavailable"]) == {"budget", "limits"}
    assert scheduler.max_num_scheduled_tokens == 2048


def test_the_limit_follows_its_policy_and_is_set_back() -> None:
    scheduler = ToyScheduler(running_max=32)
    settings = PolicySettings(limits="aimd", itl_target_s=0.02)
    host = policy_host(scheduler, settings)
    # Steps that take longer with each that runs: the target allows for about ten.
    engine = ToyEngine(scheduler, host, lambda tokens: 2e-3 * min(tokens, 32))
    engine.run([(0.02 * i, 1, 80) for i in range(400)])
    assert engine.active_most == 32
    assert scheduler.max_num_active_reqs <= 16
    told = host.document()
    assert told is not None
    assert told["active_max"] == scheduler.max_num_active_reqs
    assert "TPOT" in told["reason"]
    host.configure(None)
    assert scheduler.max_num_active_reqs == 32


def test_a_limit_goes_by_memory_where_the_budget_keeps_the_target() -> None:
    scheduler = ToyScheduler(running_max=32)
    both = PolicySettings(budget="model", limits="model", itl_target_s=0.02)
    host = policy_host(scheduler, both)
    scheduler.kv_cache_manager.usage = 0.99
    ToyEngine(scheduler, host).run([(0.02 * i, 30, 80) for i in range(200)])
    assert scheduler.max_num_active_reqs < 32


def test_targets_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="itl_target_s"):
        PolicySettings(budget="model", itl_target_s=-1.0)
