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


def test_a_mistake_at_the_start_is_logged_and_the_engine_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(POLICY_VARIABLE, '{"budget": "best"}')
    observer = PolicyObserver(core_of())
    assert observer.document() is None
    assert "policy.budget: got 'best', expected one of fixed, model" in caplog.text
