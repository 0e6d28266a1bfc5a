"""The order of prompts inside an engine: what is sorted, held for a step, and never lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mileage.vllm_plugin.policy_settings import PolicySettings
from mileage.vllm_plugin.prompt_order import PromptOrder
from mileage.vllm_plugin.scheduler_class import ordered
from tests.support.toy_scheduler import ToyEngine, ToyRequest, ToyScheduler, policy_host

DEADLINE = PolicySettings(ordering="deadline", ttft_target_s=1.0)
SHORTEST = PolicySettings(budget="fixed", ordering="shortest")
BEGUN = SimpleNamespace(scheduled_new_reqs=["a"], finished_req_ids=set())
NOTHING = SimpleNamespace(scheduled_new_reqs=[], finished_req_ids=set())
ENDED = SimpleNamespace(scheduled_new_reqs=[], finished_req_ids={"a"})


class Alone:
    """A budget that knows that a token takes a millisecond."""

    again_s = 0.0

    def tokens(self, *_: object) -> int:
        return 0

    def learn(self, *_: object) -> None: ...

    def alone_s(self, tokens: int, before: int) -> float:
        return 1e-3 * tokens


def scene(*, running_max: int = 64) -> tuple[ToyScheduler, PromptOrder, ToyRequest]:
    """A long prompt is in its middle; a longer one and a short one wait."""
    scheduler = ToyScheduler(running_max=running_max)
    long = ToyRequest("long", 5000, 10, 0.0)
    long.is_prefill_chunk = True
    long.num_computed_tokens = 2048
    scheduler.running.append(long)
    for name, prompt in (("longer", 9000), ("short", 10)):
        scheduler.add(ToyRequest(name, prompt, 10, 1.0))
    return scheduler, PromptOrder(SHORTEST, Alone()), long


def names(requests: object) -> list[str]:
    return [request.request_id for request in requests]  # type: ignore[attr-defined]


def test_the_short_one_goes_first_and_the_long_one_is_left_out_of_that_step() -> None:
    scheduler, order, long = scene()
    order.arrange(scheduler, 1.0, 0.0)
    assert names(scheduler.waiting) == ["short", "longer"]
    assert order.held == [long]
    order.hide(scheduler)
    assert scheduler.running == []
    order.show(scheduler, BEGUN)
    assert scheduler.running == [long]
    assert order.steps_held == 1


def test_the_place_of_one_that_is_held_is_not_given_away() -> None:
    scheduler, order, long = scene(running_max=2)
    scheduler.requests[long.request_id] = long
    for name in ("short 2", "short 3"):
        scheduler.add(ToyRequest(name, 10, 4))
    for _ in range(3):
        order.arrange(scheduler, 1.0, 0.0)
        order.hide(scheduler)
        output = scheduler.schedule()
        order.show(scheduler, output)
        assert len(scheduler.running) <= scheduler.max_num_active_reqs == 2
        assert long in scheduler.running


def test_none_is_held_where_none_can_begin() -> None:
    scheduler, order, _ = scene(running_max=1)
    order.arrange(scheduler, 1.0, 0.0)
    assert order.held == []


def test_none_is_held_for_one_that_comes_after_it() -> None:
    scheduler, order, _ = scene()
    scheduler.waiting.pop()
    order.arrange(scheduler, 1.0, 0.0)
    assert names(scheduler.waiting) == ["longer"]
    assert order.held == []


def test_held_in_vain_it_goes_on_until_something_changes() -> None:
    scheduler, order, long = scene()
    for output, held in ((NOTHING, [long]), (NOTHING, []), (ENDED, []), (BEGUN, [long])):
        order.arrange(scheduler, 1.0, 0.0)
        assert order.held == held
        order.hide(scheduler)
        order.show(scheduler, output)


def test_what_was_preempted_stays_in_front() -> None:
    scheduler, order, _ = scene()
    again = ToyRequest("again", 8000, 10, 0.5)
    again.num_output_tokens = 3
    scheduler.waiting.appendleft(again)
    order.arrange(scheduler, 1.0, 0.0)
    assert names(scheduler.waiting) == ["again", "short", "longer"]
    assert order.held == []


def test_earliest_deadline_first_is_as_they_came_with_one_target() -> None:
    scheduler, _, _ = scene()
    order = PromptOrder(DEADLINE, None)
    order.arrange(scheduler, 1.0, 0.0)
    assert names(scheduler.waiting) == ["longer", "short"]
    assert order.held == []


def test_a_queue_by_priority_is_left_alone() -> None:
    scheduler, order, _ = scene()
    scheduler.waiting = [*scheduler.waiting]  # type: ignore[assignment]
    order.arrange(scheduler, 1.0, 0.0)
    assert names(scheduler.waiting) == ["longer", "short"]
    assert order.held == []


def test_a_step_that_fails_loses_nobody() -> None:
    class Failing(ToyScheduler):
        def schedule(self) -> object:
            raise RuntimeError("no")

    scheduler = ordered(Failing)()
    source, order, long = scene()
    scheduler.running, scheduler.waiting = source.running, source.waiting
    order.arrange(scheduler, 1.0, 0.0)
    scheduler.mileage_order = order
    with pytest.raises(RuntimeError):
        scheduler.schedule()
    assert scheduler.running == [long]


def test_a_plan_of_another_kind_loses_nobody_either() -> None:
    scheduler, order, long = scene()
    order.arrange(scheduler, 1.0, 0.0)
    order.hide(scheduler)
    assert scheduler.running == []
    order.show(scheduler, object())
    assert (scheduler.running, order.held) == ([long], [])


def test_short_prompts_pass_long_ones_in_an_engine() -> None:
    jobs = [(0.3 * i, 6000 if i % 10 == 5 else 30, 10) for i in range(60)]
    first_s = []
    for settings in (
        PolicySettings(budget="model", itl_target_s=0.05),
        PolicySettings(budget="model", itl_target_s=0.05, ordering="shortest"),
    ):
        scheduler = ordered(ToyScheduler)()
        done = ToyEngine(scheduler, policy_host(scheduler, settings)).run(jobs)
        assert all(len(request.tokens_at) == 10 for request in done)
        shorts = [r for r in done if r.num_prompt_tokens == 30]
        first_s.append(max(r.tokens_at[0] - r.arrival_time for r in shorts))
    assert first_s[1] < first_s[0] / 2


def test_without_the_class_the_order_is_told_to_be_unavailable() -> None:
    scheduler = ToyScheduler()
    host = policy_host(scheduler, SHORTEST)
    told = host.document()
    assert told is not None
    assert "scheduler class" in told["unavailable"]["ordering"]
