"""calibrate(): how an engine's real steps differ from the model's, and what knowing it is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.calibration import Calibration, calibrated, learn_calibration
from mileage.costmodel.fitted import StepSample
from mileage.costmodel.pipeline_fill import PipelineFill
from mileage.costmodel.served import ServedRequest
from mileage.costmodel.step_samples import interval_samples, observed_steps, step_samples
from mileage.costmodel.step_table import StepTable
from mileage.planner.prediction import PredictionErrors, prediction_errors
from mileage.sim.node import ReplicaSpec

__all__ = ["Calibrated", "calibrate", "calibrate_steps"]


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned, and how well it serves for what it was not learned from."""

    calibration: Calibration
    kind: str
    """steps: of single steps; answers: of the mean steps of answers."""
    before: PredictionErrors | None = None
    """Of the second half of the requests, by the model as it is. None: there were only steps."""
    after: PredictionErrors | None = None
    """By the model with what the first half taught. None also where that was too little."""


def calibrate(
    served: Sequence[ServedRequest],
    spec: ReplicaSpec,
    *,
    step_tokens_max: int,
    first_token_s: float = 0.0,
    fill: PipelineFill | None = None,
) -> Calibrated:
    """Of one engine's answers. `step_tokens_max`: tokens of one step of the real engine.

    The calibration is of all steps; what is judged is what the first half of the time teaches, on
    the requests of the second one. ConfigError (`samples`) for fewer than 32 steps.
    """
    split_s = _middle_s(served)
    observed = observed_steps(served)
    if observed:
        samples = step_samples(served, observed, step_tokens_max)
        early = [
            sample for sample, step in zip(samples, observed, strict=True) if step.end_s <= split_s
        ]
    else:
        samples = interval_samples(served)
        early = interval_samples([each for each in served if each.last_s <= split_s])
    found = learn_calibration(samples, spec.table)

    def errors(table: StepTable) -> PredictionErrors:
        tried = msgspec.structs.replace(spec, table=table)
        return prediction_errors(
            served, tried, since_s=split_s, first_token_s=first_token_s, fill=fill
        )

    after = None
    try:
        after = errors(calibrated(spec.table, learn_calibration(early, spec.table)))
    except ConfigError as error:
        if error.key != "samples":
            raise
    return Calibrated(
        calibration=found,
        kind="steps" if observed else "answers",
        before=errors(spec.table),
        after=after,
    )


def calibrate_steps(samples: Sequence[StepSample], table: StepTable) -> Calibrated:
    """Of steps that an engine told by itself, in their order. ConfigError as of `calibrate`."""
    return Calibrated(calibration=learn_calibration(samples, table), kind="steps")


def _middle_s(served: Sequence[ServedRequest]) -> float:
    """When half of the requests had been sent."""
    starts = sorted(each.dispatched_s for each in served)
    return starts[len(starts) // 2] if starts else math.inf
