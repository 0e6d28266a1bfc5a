"""Weights of the uses of a step."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.ledger.step_model import StepModel
from mileage.ledger.step_shares import shares_of_steps, uses_of, weigh_uses

MODEL = StepModel(((0.01, 0.001, 1e-6, 1e-4),))
DECODE = StepUse(1, 0, 1, 1000)
LONG = StepUse(2, 0, 1, 3000)
PROMPT = StepUse(3, 500, 0, 0)


def parts(
    *uses: StepUse, model: StepModel | None, ratios: tuple[float, float, float]
) -> list[float]:
    rows = uses_of([EngineStep("r", 0, 1, uses)])
    weights = weigh_uses(rows, 1, model, ratios, 5.0).weights
    found: list[float] = (weights / weights.sum()).tolist()
    return found


@pytest.mark.parametrize(
    ("uses", "model", "ratios", "wanted"),
    [
        pytest.param(
            (DECODE, PROMPT), None, (1, 0, 0), [5 / 505, 500 / 505],
            id="computing without a model: prompt tokens, and five for one of an answer",
        ),
        pytest.param(
            (DECODE, LONG), None, (0, 1, 0), [1001 / 4002, 3001 / 4002],
            id="memory: the context that each reads or holds",
        ),
        pytest.param(
            (DECODE, PROMPT), None, (0, 0, 1), [1 / 501, 500 / 501],
            id="interconnect: tokens",
        ),
        pytest.param(
            (DECODE, PROMPT), None, (0.7, 0.3, 0),
            [0.7 * 5 / 505 + 0.3 * 1001 / 1501, 0.7 * 500 / 505 + 0.3 * 500 / 1501],
            id="the shares of all dimensions are added up in the ratios",
        ),
        pytest.param(
            (DECODE, LONG), MODEL, (1, 0, 0), [7 / 16, 9 / 16],
            id="with a model: the fixed part in equal parts, and what each adds",
        ),
        pytest.param(
            (DECODE, PROMPT), MODEL, (1, 0, 0), [7 / 62, 55 / 62],
            id="a prompt has its equal part of the fixed part too",
        ),
        pytest.param((PROMPT,), MODEL, (0.7, 0.3, 0), [1.0], id="alone: all of it"),
    ],
)  # fmt: skip
def test_a_step_is_shared_by_what_was_used(
    uses: tuple[StepUse, ...],
    model: StepModel | None,
    ratios: tuple[float, float, float],
    wanted: list[float],
) -> None:
    assert parts(*uses, model=model, ratios=ratios) == pytest.approx(wanted)


def test_steps_are_shared_each_by_itself() -> None:
    steps = [
        EngineStep("r", 0, 7, (DECODE, LONG)),
        EngineStep("r", 7, 5),
        EngineStep("r", 12, 3, (PROMPT,)),
    ]
    shares, prefill, again = shares_of_steps(
        uses_of(steps), np.array([7, 5, 3]), None, (1.0, 0.0, 0.0), 5.0
    )
    assert shares.tolist() == [4, 3, 3]
    assert prefill.tolist() == [0, 0, 3]
    assert again.tolist() == [0, 0, 0]
