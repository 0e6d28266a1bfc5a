"""The policies of one engine at its steps: when they decide, and what the steps took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.budget.model import ModelBudget
from mileage.vllm_plugin.policy_observer import PolicyObserver
from mileage.vllm_plugin.policy_settings import POLICY_VARIABLE
from tests.support.toy_scheduler import ToyRequest, ToyScheduler

BUDGET = {"budget": "model", "itl_target_s": 0.05}
MS = 1_000_000


def core_of() -> Any:
    """An engine with one request."""
    scheduler = ToyScheduler()
    scheduler.add(ToyRequest("a", 100, 5))
    return SimpleNamespace(scheduler=scheduler, vllm_config=SimpleNamespace())


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What steps took, as the budget is told."""
    found: list[float] = []
    monkeypatch.setattr(ModelBudget, "learn", lambda self, *step: found.append(step[-1]))
    return found


def step(observer: PolicyObserver, core: Any, began_ns: int, took_ns: int) -> None:
    """A step of the engine."""
    observer.before_step(core, 1.0)
    output = core.scheduler.schedule()
    core.scheduler.update(output, 1.0)
    observer.after_step(core, output, None, began_ns, took_ns, 0)


def test_off_it_changes_and_learns_nothing(learned: list[float]) -> None:
    core = core_of()
    observer = PolicyObserver(core)
    step(observer, core, 0, 10 * MS)
    assert observer.document() is None
    assert learned == []


def test_a_step_takes_what_those_that_decode_wait_for(learned: list[float]) -> None:
    core = core_of()
    observer = PolicyObserver(core)
    observer.ask(BUDGET)
    step(observer, core, 1000 * MS, 10 * MS)
    step(observer, core, 1013 * MS, 10 * MS)
    assert learned == pytest.approx([0.010, 0.013])
    while core.scheduler.requests:
        step(observer, core, 1023 * MS, 10 * MS)
    learned.clear()
    # Nobody waited in between.
    core.scheduler.add(ToyRequest("b", 100, 5))
    step(observer, core, 9000 * MS, 10 * MS)
    assert learned == pytest.approx([0.010])


def test_the_same_again_leaves_what_was_learned() -> None:
    core = core_of()
    observer = PolicyObserver(core)
    observer.ask(BUDGET)
    step(observer, core, 1000 * MS, 10 * MS)
    observer.ask(dict(BUDGET))
    told = observer.document()
    assert told is not None
    assert told["steps"] == 1
    observer.ask(None)
    assert observer.document() is None


def test_a_bad_one_changes_nothing() -> None:
    observer = PolicyObserver(core_of())
    observer.ask(BUDGET)
    with pytest.raises(ConfigError):
        observer.ask({"budget": "best"})
    told = observer.document()
    assert told is not None
    assert told["budget"] == "model"


def test_when_nobody_renews_it_what_the_start_says_holds_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(POLICY_VARIABLE, '{"budget": "fixed"}')
    observer = PolicyObserver(core_of())
    observer.ask(BUDGET)
    observer.lapse()
    told = observer.document()
    assert told is not None
    assert told["budget"] == "fixed"


class Broken:
    """A policy whose fault quotes a prompt; `made` counts them."""

    made = 0

    def __init__(self, *_: object) -> None:
        Broken.made += 1

    def tokens(self, *_: object) -> int:
        raise RuntimeError("what somebody asked")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> type[Broken]:
    monkeypatch.setattr("mileage.vllm_plugin.policy_host.make_budget", Broken)
    monkeypatch.setattr(Broken, "made", 0)
    return Broken


def test_a_policy_that_fails_is_off_told_once_and_not_begun_by_a_renewal(
    broken: type[Broken], caplog: pytest.LogCaptureFixture
) -> None:
    core = core_of()
    observer = PolicyObserver(core)
    observer.ask(BUDGET)
    for _ in range(3):
        step(observer, core, 0, MS)
        observer.ask(dict(BUDGET))
    told = observer.document()
    assert told is not None
    assert told["failed"].startswith("budget=model: RuntimeError at test_policy_observer.py:")
    assert core.scheduler.max_num_scheduled_tokens == 2048
    (record,) = caplog.records
    assert "policy budget=model failed, the engine goes on without it" in record.getMessage()
    assert "somebody" not in caplog.text + str(told)
    assert broken.made == 1
    observer.ask(None)
    assert observer.document() is None
    observer.ask(BUDGET)
    assert (observer.document() or {})["budget"] == "model"
    assert broken.made == 2


def test_a_policy_of_the_start_that_failed_is_not_begun_when_a_lease_ends(
    monkeypatch: pytest.MonkeyPatch, broken: type[Broken]
) -> None:
    monkeypatch.setenv(POLICY_VARIABLE, '{"budget": "model", "itl_target_s": 0.05}')
    core = core_of()
    observer = PolicyObserver(core)
    step(observer, core, 0, MS)
    observer.lapse()
    assert "failed" in (observer.document() or {})
    assert broken.made == 1


def test_a_step_that_cannot_be_read_ends_the_policies_and_not_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = core_of()
    observer = PolicyObserver(core)
    observer.ask(BUDGET)
    monkeypatch.setattr("mileage.vllm_plugin.policy_host.step_taken", lambda output: 1 // 0)
    step(observer, core, 0, MS)
    assert (observer.document() or {})["failed"].startswith("budget=model: ZeroDivisionError at ")
    step(observer, core, 0, MS)


def test_one_that_cannot_be_made_is_told_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mileage.vllm_plugin.policy_host.make_budget", lambda *_: 1 // 0)
    core = core_of()
    observer = PolicyObserver(core)
    observer.ask(BUDGET)
    assert (observer.document() or {})["failed"].startswith("budget=model: ZeroDivisionError at ")
    step(observer, core, 0, MS)


def test_a_mistake_at_the_start_is_logged_and_the_engine_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(POLICY_VARIABLE, '{"budget": "best"}')
    observer = PolicyObserver(core_of())
    assert observer.document() is None
    assert "policy.budget: got 'best', expected one of fixed, model" in caplog.text
