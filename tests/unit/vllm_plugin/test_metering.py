"""Whether an engine's steps are told: asked for, possible, and working; else why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mileage.storage.step_file import read_steps
from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.metering import add_metering, metering_state
from mileage.vllm_plugin.step_tap import METERING_OBSERVER, StepTap
from tests.support.scheduler_outputs import Part, step_output


class Scheduler:
    def schedule(self) -> Any:
        return step_output(Part("chatcmpl-req-7.01234567-0", 0, 3, prompt=3))

    def update_from_output(self, output: Any, model_output: Any) -> dict[int, Any]:
        return {}


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MILEAGE_STEPS_DIR", str(tmp_path / "steps"))
    monkeypatch.setenv("MILEAGE_REPLICA", "a")
    yield tmp_path / "steps"
    engine_hook.unregister(METERING_OBSERVER)


def engine(ranks: int = 1) -> Any:
    class Core:
        """An EngineCore of its own class: what is wrapped is left with it."""

        def __init__(self) -> None:
            parallel = SimpleNamespace(data_parallel_size=ranks)
            self.vllm_config = SimpleNamespace(parallel_config=parallel)
            self.scheduler = Scheduler()

        def step(self) -> None:
            self.scheduler.update_from_output(self.scheduler.schedule(), None)

    add_metering()
    assert engine_hook.install(Core) is None
    return Core()


def test_steps_are_told_from_the_first_on(steps: Path) -> None:
    core = engine()
    core.step()
    assert metering_state(core) is True
    tap = engine_hook.CoreHook.of(core).observer(METERING_OBSERVER)
    assert isinstance(tap, StepTap)
    tap.channel.stop()
    (told,) = (step for path in steps.glob("*.steps") for step in read_steps(path))
    assert (told.replica, told.uses[0].request_id, told.duration_ns) == ("a", 7, tap.busy_ns)


def test_nobody_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILEAGE_STEPS_DIR", raising=False)
    core = engine()
    core.step()
    assert engine_hook.CoreHook.of(core).observer(METERING_OBSERVER) is None
    assert str(metering_state(core)).startswith("MILEAGE_STEPS_DIR is not set")


def test_several_ranks_are_not_metered_and_the_engine_goes_on(
    steps: Path, caplog: pytest.LogCaptureFixture
) -> None:
    core = engine(ranks=2)
    core.step()
    assert str(metering_state(core)).startswith("2 data-parallel ranks")
    assert "ranks behind one address" in caplog.text
    assert not steps.exists()


def test_a_scheduler_of_an_unknown_kind_is_told_as_such(steps: Path) -> None:
    core = engine()
    core.scheduler.schedule = lambda: SimpleNamespace()
    core.step()
    core.step()
    told = str(metering_state(core))
    assert told.startswith("what watches its steps has failed: AttributeError at step_uses.py:")
