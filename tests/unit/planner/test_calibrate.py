"""Calibrating by an engine's answers: judged on requests that it was not learned from."""

from __future__ import annotations

from array import array

import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.calibration import Calibration, calibrated
from mileage.costmodel.served import ServedRequest
from mileage.costmodel.step_table import StepLine, StepTable
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.measure.call_record import CallRecord
from mileage.planner.calibrate import calibrate, calibrate_steps
from mileage.planner.engine_step_samples import engine_step_samples
from mileage.planner.prediction import prediction_errors
from mileage.planner.served_calls import served_of_calls
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from tests.support.lockstep_engine import arrivals, serve

SLOTS, BUDGET = 16, 512
TABLE = StepTable(
    lines=(
        StepLine(
            decode_s=tuple(0.010 + 0.0001 * n for n in range(SLOTS + 1)),
            mixed_s=tuple(0.010 + 0.00005 * n for n in range(BUDGET + SLOTS + 1)),
            kv_s=2e-7,
            pair_s=0.0,
        ),
    )
)
SPEC = ReplicaSpec(
    name="engine",
    engine=EngineConfig(
        kv_blocks=100_000, running_max=SLOTS, step_tokens_max=BUDGET, prefix_cache=False
    ),
    table=TABLE,
)
REAL = calibrated(TABLE, Calibration(decode_ratio=1.4, prefill_ratio=0.8, kv_ratio=1.4))


def answers(count: int = 240, table: StepTable = REAL) -> list[ServedRequest]:
    load = arrivals(count, 4.0, 3, prompt=(20, 900), output=(5, 80))
    return serve(load, table.step_s, slots=SLOTS, step_tokens_max=BUDGET)


def test_later_requests_are_predicted_better_by_what_the_first_ones_taught() -> None:
    found = calibrate(answers(), SPEC, step_tokens_max=BUDGET)
    assert found.kind == "steps"
    assert found.calibration.decode_ratio == pytest.approx(1.4, rel=0.02)
    assert found.calibration.prefill_ratio == pytest.approx(0.8, rel=0.05)
    assert found.before is not None
    assert found.after is not None
    assert found.before.requests == found.after.requests == 120
    assert (found.before.itl_ratio or 0.0) > 0.2
    assert (found.after.itl_ratio or 1.0) < 0.02
    assert (found.before.ttft_ratio or 0.0) > 2 * (found.after.ttft_ratio or 1.0)


def test_answers_without_times_of_tokens_teach_by_their_mean_steps() -> None:
    plain = [
        ServedRequest(
            replica=each.replica,
            dispatched_s=each.dispatched_s,
            first_s=each.first_s,
            last_s=each.last_s,
            prompt_tokens=each.prompt_tokens,
            output_tokens=each.output_tokens,
        )
        for each in answers()
    ]
    found = calibrate(plain, SPEC, step_tokens_max=BUDGET)
    assert found.kind == "answers"
    assert found.after is not None
    assert (found.after.itl_ratio or 1.0) < 0.1


def test_an_engine_as_the_model_says_has_no_error() -> None:
    served = answers(table=TABLE)
    errors = prediction_errors(served, SPEC)
    assert errors.requests == 240
    assert errors.ttft_ratio == pytest.approx(0.0, abs=2e-3)
    assert errors.itl_ratio == pytest.approx(0.0, abs=2e-3)


def test_a_first_token_takes_more_than_steps() -> None:
    served = answers(1, table=TABLE)
    first_s = (served[0].first_s or 0.0) - served[0].dispatched_s
    late = prediction_errors(served, SPEC, first_token_s=first_s)
    assert late.ttft_ratio == pytest.approx(1.0, rel=2e-3)
    assert late.itl_ratio == pytest.approx(0.0, abs=2e-3)


def test_too_few_answers_are_refused_and_too_few_early_ones_are_not_judged() -> None:
    with pytest.raises(ConfigError, match="at least 32 steps"):
        calibrate(answers(1)[:1], SPEC, step_tokens_max=BUDGET)
    found = calibrate(answers(2), SPEC, step_tokens_max=BUDGET)
    assert found.before is not None
    assert found.after is None


def test_what_does_not_fit_is_left_out() -> None:
    small = EngineConfig(
        kv_blocks=20, running_max=SLOTS, step_tokens_max=BUDGET, prefix_cache=False
    )
    spec = ReplicaSpec(name="engine", engine=small, table=TABLE)
    served = answers(table=TABLE)
    fitting = [each for each in served if each.prompt_tokens + each.output_tokens <= 320]
    assert 0 < prediction_errors(served, spec).requests <= len(fitting)


def call(**fields: object) -> CallRecord:
    usual: dict[str, object] = {
        "index": 0,
        "phase": "measured",
        "outcome": "ok",
        "scheduled_s": 0.0,
        "sent_s": 0.1,
        "ended_s": 0.9,
        "token_times_s": array("d", [0.3, 0.4]),
        "token_events": array("I", [1, 1]),
        "prompt_tokens": 7,
        "cached_tokens": 2,
        "output_tokens": 2,
    }
    return CallRecord(**{**usual, **fields})  # type: ignore[arg-type]


def test_an_answer_of_a_load_generator() -> None:
    (found,) = served_of_calls([call()], ["one"])
    assert (found.replica, found.dispatched_s, found.first_s, found.last_s) == (
        "one",
        0.1,
        0.3,
        0.4,
    )
    assert found.computed_tokens == 5
    assert found.token_times_s == (0.3, 0.4)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"outcome": "cut"}, id="it failed"),
        pytest.param({"attempts": 2}, id="it was sent twice"),
        pytest.param({"sent_s": None}, id="it was never sent"),
        pytest.param({"prompt_tokens": None}, id="the engine told no counts"),
        pytest.param({"endpoint": "embeddings"}, id="it generates nothing"),
    ],
)
def test_calls_that_teach_nothing_are_left_out(fields: dict[str, object]) -> None:
    assert list(served_of_calls([call(**fields)], ["one"])) == []


def test_tokens_that_came_together_are_no_steps() -> None:
    together = call(token_times_s=array("d", [0.3]), token_events=array("I", [2]), target=3)
    (found,) = served_of_calls([together], ["one"])
    assert (found.replica, found.token_times_s) == ("3", ())
    (whole,) = served_of_calls([call(token_times_s=array("d"), token_events=array("I"))], ["one"])
    assert (whole.first_s, whole.last_s) == (None, 0.9)


def test_steps_that_an_engine_told() -> None:
    steps = [
        EngineStep("engine", 0, 5_000_000),
        EngineStep(
            "engine",
            5_000_000,
            12_000_000,
            (StepUse(1, 0, 1, 100), StepUse(2, 64, 0, 0), StepUse(3, 0, 1, 50)),
        ),
    ]
    (sample,) = engine_step_samples(steps)
    assert tuple(sample)[:3] == (2.0, 150.0, 64.0)
    assert sample.step_s == pytest.approx(0.012)
    told = [
        EngineStep(
            "engine",
            n,
            round(REAL.step_s(n % 8 + 1, 50 * n) * 1e9),
            tuple(StepUse(k, 0, 1, 50 * n if not k else 0) for k in range(n % 8 + 1)),
        )
        for n in range(200)
    ]
    found = calibrate_steps([*engine_step_samples(told)], TABLE)
    assert found.calibration.decode_ratio == pytest.approx(1.4, rel=0.03)
    assert found.before is None
