"""`mileage simulate --steps`: every step of the engines, as the ledger has them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from mileage.cli.simulate_steps import engine_steps
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.sim.step_log import StepPart, Stretch
from mileage.storage.step_file import read_steps
from tests.support.simulate_cli import document, error_of

_ARGUMENTS = (
    "--trace=synthetic:rate=10,duration=10s",
    "--model=llama-3.1-8b",
    "--gpu=h100",
    "--policy=off",
)


def test_a_file_has_every_step_of_every_replica(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    found = document(*_ARGUMENTS, "--replicas=2", f"--steps={path}")
    steps = list(read_steps(path))
    assert {step.replica for step in steps} == {"replica-0", "replica-1"}
    for name in ("replica-0", "replica-1"):
        mine = [step for step in steps if step.replica == name]
        for before, after in pairwise(mine):
            assert after.started_at_utc_ns >= before.started_at_utc_ns + before.duration_ns
    requests = {use.request_id for step in steps for use in step.uses}
    assert requests == set(range(1, found["requests"] + 1))


def test_a_look_at_the_steps_changes_nothing(tmp_path: Path) -> None:
    plain = document(*_ARGUMENTS)
    watched = document(*_ARGUMENTS, f"--steps={tmp_path / 'steps'}")
    for found in (plain, watched):
        found["assumptions"].pop("path_reason")
        found.pop("wall_s", None)
        found.pop("requests_per_s", None)
    assert watched["ttft_s"] == plain["ttft_s"]
    assert watched["duration_s"] == plain["duration_s"]


def test_compiled_code_shows_no_steps(tmp_path: Path) -> None:
    assert "--steps" in error_of(*_ARGUMENTS, "--path=fast", f"--steps={tmp_path / 'steps'}")


def test_a_file_that_cannot_be_written_is_refused_by_the_options_name(tmp_path: Path) -> None:
    assert "--steps" in error_of(*_ARGUMENTS, f"--steps={tmp_path / 'none' / 'steps'}")


def test_a_stretch_is_a_step_after_the_other_with_a_token_more_of_context() -> None:
    parts = (StepPart(1, 0, 1, 100, 0, 1), StepPart(2, 0, 1, 7, 0, 1))
    stretch = Stretch(1.0, np.array([0.25, 0.5]), parts)
    first, second = engine_steps("r", stretch, started_at_utc_ns=10)
    assert first == EngineStep(
        "r", 1_000_000_010, 250_000_000, (StepUse(1, 0, 1, 100), StepUse(2, 0, 1, 7))
    )
    assert second == EngineStep(
        "r", 1_250_000_010, 500_000_000, (StepUse(1, 0, 1, 101), StepUse(2, 0, 1, 8))
    )


def test_rounding_makes_no_steps_overlap() -> None:
    stretch = Stretch(1.0, np.array([0.25]), (StepPart(1, 5, 0, 0, 0, 1),))
    (step,) = engine_steps("r", stretch, after_ns=1_000_000_002)
    assert (step.started_at_utc_ns, step.duration_ns) == (1_000_000_002, 249_999_998)
