"""Observers of an engine's steps: when they are called, and that none can harm the engine."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from mileage.vllm_plugin.engine_hook import CoreHook, install, register, unregister


class Scheduler:
    """Begins and ends steps the way vLLM's does."""

    def __init__(self) -> None:
        self.scheduled: list[str] = []

    def schedule(self, throttle_prefills: bool = False) -> list[bool]:
        self.scheduled.append("schedule")
        return [throttle_prefills]

    def update_from_output(self, scheduler_output: list[bool], model_output: str) -> dict[int, str]:
        self.scheduled.append(f"update {model_output}")
        return {0: model_output}


def engine_class() -> Any:
    """A fresh class each: the wrapping is on the class."""

    class EngineCore:
        def __init__(self) -> None:
            self.scheduler = Scheduler()
            self.queue: deque[list[bool]] = deque()

        def step(self) -> Any:
            output = self.scheduler.schedule(False)
            return self.scheduler.update_from_output(output, "tokens")

        def step_with_batch_queue(self) -> Any:
            self.queue.append(self.scheduler.schedule())
            if len(self.queue) < 2:
                return None
            return self.scheduler.update_from_output(self.queue.popleft(), "tokens")

    return EngineCore


class Recorder:
    """Keeps what it is told."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.told: list[str] = []
        self.steps: list[tuple[int, int]] = []

    def before_step(self, core: Any, now_s: float) -> None:
        self.told.append("before")

    def after_step(
        self, core: Any, scheduler_output: Any, model_output: Any, *times_ns: int
    ) -> None:
        started_ns, duration_ns, _ = times_ns
        self.told.append(f"after {model_output}")
        self.steps.append((started_ns, started_ns + duration_ns))


PROMPT = "what somebody asked"


class Failing(Recorder):
    """Fails at once, and quotes what it must not."""

    def before_step(self, core: Any, now_s: float) -> None:
        super().before_step(core, now_s)
        raise RuntimeError(PROMPT)

    def give_up(self, reason: str) -> None:
        self.told.append(reason.partition(".py")[0])


class FailingAgain(Failing):
    """Fails when it gives up, too."""

    def give_up(self, reason: str) -> None:
        raise RuntimeError(PROMPT)


@pytest.fixture
def registered() -> Iterator[None]:
    register("recorder", Recorder)
    yield
    unregister("recorder")
    unregister("other")


def recorder_of(core: Any, name: str = "recorder") -> Recorder:
    found = CoreHook.of(core).observer(name)
    assert isinstance(found, Recorder)
    return found


@pytest.mark.usefixtures("registered")
def test_every_step_is_told_before_and_after() -> None:
    engine_core = engine_class()
    assert install(engine_core) is None
    core = engine_core()
    assert [core.step(), core.step()] == [{0: "tokens"}] * 2
    assert recorder_of(core).told == ["before", "after tokens"] * 2
    assert core.scheduler.scheduled == ["schedule", "update tokens"] * 2
    assert CoreHook.of(core).steps_total == 2
    assert CoreHook.of(core).own_ns > 0


@pytest.mark.usefixtures("registered")
def test_wrapping_twice_tells_once() -> None:
    engine_core = engine_class()
    for _ in range(2):
        install(engine_core)
    core = engine_core()
    core.step()
    CoreHook.of(core)
    core.step()
    assert recorder_of(core).told == ["before", "after tokens"] * 2


@pytest.mark.usefixtures("registered")
def test_pipelined_steps_never_overlap() -> None:
    engine_core = engine_class()
    install(engine_core)
    core = engine_core()
    for _ in range(20):
        core.step_with_batch_queue()
    recorder = recorder_of(core)
    assert recorder.told.count("before") == 20
    assert len(recorder.steps) == 19
    # Wall and monotonic clock are read one after the other: a whisker apart.
    slack_ns = 1_000_000
    for (_, end_ns), (start_ns, _) in zip(recorder.steps, recorder.steps[1:], strict=False):
        assert start_ns >= end_ns - slack_ns


@pytest.mark.usefixtures("registered")
def test_an_observer_that_fails_is_dropped_and_the_engine_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    register("other", Failing)
    engine_core = engine_class()
    install(engine_core)
    core = engine_core()
    CoreHook.of(core)
    failing = recorder_of(core, "other")
    with caplog.at_level(logging.ERROR, "vllm.mileage"):
        assert [core.step(), core.step()] == [{0: "tokens"}] * 2
    hook = CoreHook.of(core)
    assert failing.told == ["before", "RuntimeError at test_engine_hook"]
    assert (hook.observer("other"), hook.failed("other")) == (None, failing)
    assert str(hook.failure("other")).endswith("(before_step)")
    assert (hook.failed("recorder"), hook.failure("recorder")) == (None, None)
    assert recorder_of(core).told == ["before", "after tokens"] * 2
    (record,) = caplog.records
    assert "observer other failed, the engine goes on without it: Runtime" in record.getMessage()
    assert PROMPT not in caplog.text


@pytest.mark.usefixtures("registered")
def test_one_that_cannot_even_give_up_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    register("other", FailingAgain)
    engine_core = engine_class()
    install(engine_core)
    core = engine_core()
    with caplog.at_level(logging.ERROR, "vllm.mileage"):
        assert [core.step(), core.step()] == [{0: "tokens"}] * 2
    assert recorder_of(core).told == ["before", "after tokens"] * 2
    assert [PROMPT in record.getMessage() for record in caplog.records] == [False, False]
    assert "what observer other had set may stay" in caplog.text


def test_a_factory_that_fails_leaves_the_others(
    registered: None, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(core: Any) -> Recorder:
        raise RuntimeError("no")

    register("other", refuse)
    engine_core = engine_class()
    install(engine_core)
    core = engine_core()
    assert core.step() == {0: "tokens"}
    assert recorder_of(core).told == ["before", "after tokens"]
    assert "other" in caplog.text
    assert str(CoreHook.of(core).failure("other")).startswith("RuntimeError at ")


def test_an_engine_without_steps_tells_why() -> None:
    assert install(type("EngineCore", (), {})) == "EngineCore has no step or step_with_batch_queue"


def test_an_engine_whose_scheduler_has_other_methods_runs_unseen() -> None:
    engine_core = engine_class()
    install(engine_core)
    core = engine_core()
    core.scheduler = object()
    assert "AttributeError" in str(CoreHook.of(core).why_not)
