"""The tap: what of an engine's steps is in the files, under which ids and times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mileage.core.request_name import request_name
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.storage.step_directory import begin_step_directory
from mileage.storage.step_file import read_steps
from mileage.vllm_plugin.record_channel import ChannelLimits
from mileage.vllm_plugin.step_tap import StepTap, TapSettings, tap_settings, why_not_metered
from tests.support.scheduler_outputs import Part, step_output

TAG, OTHER = "01234567", "76543210"


class Tapped:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tap = StepTap(TapSettings(directory, "a/1"), ChannelLimits(interval_s=0.001))

    def step(self, output: Any, started_ns: int, duration_ns: int) -> None:
        self.tap.after_step(None, output, None, started_ns, duration_ns, 0)

    def told(self) -> list[EngineStep]:
        self.tap.channel.stop()
        return [step for path in self.directory.glob("*.steps") for step in read_steps(path)]


@pytest.fixture
def tapped(tmp_path: Path) -> Iterator[Tapped]:
    begin_step_directory(tmp_path / "steps", TAG)
    made = Tapped(tmp_path / "steps")
    yield made
    made.tap.channel.stop()


def named(number: int, tag: str = TAG) -> str:
    return f"cmpl-{request_name(number, tag).decode()}-0-89abcdef"


def test_each_request_has_the_gateways_id_or_one_of_its_own(tapped: Tapped) -> None:
    output = step_output(
        Part(named(7), 0, 10, prompt=10),
        Part(named(7, OTHER), 0, 20, prompt=20),
        Part("chatcmpl-0123456789abcdef-00000000", 0, 30, prompt=30),
    )
    tapped.step(output, 1000, 50)
    (step,) = tapped.told()
    assert (step.replica, step.started_at_utc_ns, step.duration_ns) == ("a/1", 1000, 50)
    assert step.uses[0] == StepUse(7, 10, 0, 0)
    assert [use.prefill_tokens for use in step.uses] == [10, 20, 30]
    own = {use.request_id for use in step.uses[1:]}
    assert len(own) == 2
    assert max(own) < 0


def test_steps_never_overlap_and_sum_to_the_busy_time(tapped: Tapped) -> None:
    tapped.step(step_output(Part(named(1), 0, 10, prompt=10)), 1000, 50)
    tapped.step(step_output(Part(named(1), 10, 1, outputs=1)), 1030, 50)  # begun beside the first
    tapped.step(step_output(Part(named(1), 11, 1, outputs=2)), 1010, 20)  # the clock was set back
    tapped.step(step_output(Part(named(1), 12, 1, outputs=3)), 2000, 10)
    steps = tapped.told()
    times = [(each.started_at_utc_ns, each.duration_ns) for each in steps]
    assert times == [(1000, 50), (1050, 30), (1080, 0), (2000, 10)]
    assert sum(each.duration_ns for each in steps) == tapped.tap.busy_ns == 90
    assert tapped.tap.steps_total == 4


def test_a_step_that_computed_nothing_is_not_told(tapped: Tapped) -> None:
    tapped.step(step_output(finished=("x",)), 1000, 50)
    assert tapped.told() == []
    assert tapped.tap.busy_ns == 0


def test_before_there_is_a_gateway_every_name_is_taken(tmp_path: Path) -> None:
    tapped = Tapped(tmp_path)
    tapped.step(step_output(Part(named(7, OTHER), 0, 1, prompt=1)), 0, 1)
    ((use,),) = (step.uses for step in tapped.told())
    assert use.request_id == 7


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        pytest.param({}, "MILEAGE_STEPS_DIR is not set", id="no directory"),
        pytest.param({"MILEAGE_STEPS_DIR": "/x"}, "MILEAGE_REPLICA is not set", id="no name"),
    ],
)
def test_settings_that_are_missing_are_named(environ: dict[str, str], told: str) -> None:
    found = tap_settings(environ)
    assert isinstance(found, str)
    assert found.startswith(told)


def test_settings_are_those_of_the_environment() -> None:
    environ = {"MILEAGE_STEPS_DIR": "/x", "MILEAGE_REPLICA": "a"}
    assert tap_settings(environ) == TapSettings(Path("/x"), "a")


@pytest.mark.parametrize(
    ("ranks", "apart", "why"),
    [
        pytest.param(1, False, None, id="one engine"),
        pytest.param(2, True, None, id="ranks with an address each"),
        pytest.param(2, False, "2 data-parallel ranks", id="ranks behind one address"),
    ],
)
def test_ranks_behind_one_address_are_not_metered(ranks: int, apart: bool, why: str | None) -> None:
    parallel = SimpleNamespace(data_parallel_size=ranks, data_parallel_external_lb=apart)
    found = why_not_metered(SimpleNamespace(parallel_config=parallel))
    assert found == why or (found is not None and why is not None and found.startswith(why))
