"""learn_engine(): a model of an engine from the answers that a gateway recorded of it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mileage.core.errors import ConfigError
from mileage.costmodel.batch_fit import relative_errors
from mileage.costmodel.fitted import FittedSteps, StepSample, fit_steps
from mileage.costmodel.fitted_engine import NOISE_MAX_RATIO, FittedEngine, SampleKind, SeenLoad
from mileage.costmodel.served import ServedRequest
from mileage.costmodel.step_samples import (
    Step,
    interval_samples,
    observed_steps,
    step_samples,
)
from mileage.costmodel.step_table import StepTable

__all__ = ["KnownLimits", "learn_engine"]

_STEPS_MIN: Final = 200
_STEPS_MAX: Final = 50_000
_SEARCHED_MAX: Final = 10_000
"""The latest steps that are learned from, and those that are gone through for each budget."""
_ALONE_MIN: Final = 5
_REST_S: Final = 0.05
_BUDGETS: Final = tuple(2**power for power in range(6, 15))
_BUDGET_USUAL: Final = 2048
"""vLLM's and llama.cpp's, where nothing tells it."""
_AS_GOOD: Final = 1.001
_SHARED_QUANTILE: Final = 0.25
_OF_NORMAL: Final = 1.4826
"""Standard deviation over the median absolute deviation, of a normal distribution."""


class KnownLimits(NamedTuple):
    """What is told of the engine; None: not known."""

    running_max: int | None = None
    step_tokens_max: int | None = None
    kv_tokens_max: int | None = None


def learn_engine(
    served: Sequence[ServedRequest],
    *,
    limits: KnownLimits | None = None,
    model: str = "model",
    engine: str = "",
) -> FittedEngine:
    """Learn step times, limits and habits from answers of one engine, in any order.

    Best from the times of tokens: each gap is one step, and shows how long one with just so many
    requests, tokens of context and prompt tokens takes. Else from the mean step of each answer,
    which says less of steps with prompts, as those are mixed with others. Raises ConfigError where
    there is too little to learn from.
    """
    limits = limits or KnownLimits()
    served = sorted(served, key=lambda each: each.dispatched_s)
    observed = observed_steps(served)[-_STEPS_MAX:]
    kind: SampleKind = "steps" if len(observed) >= _STEPS_MIN else "answers"
    budget = limits.step_tokens_max
    if kind == "steps":
        budget = budget or _step_tokens(served, observed[-_SEARCHED_MAX:])
        samples = step_samples(served, observed, budget)
    else:
        budget = budget or _BUDGET_USUAL
        samples = interval_samples(served)
    steps = fit_steps(samples, engine)
    seen = _seen(served, samples)
    running_max = limits.running_max or seen.running_max
    if not limits.step_tokens_max:
        budget = max(budget, running_max)  # each of them decodes in every step
    return FittedEngine(
        steps=steps,
        kind=kind,
        model=model,
        running_max=running_max,
        running_max_told=limits.running_max is not None,
        step_tokens_max=budget,
        step_tokens_told=limits.step_tokens_max is not None,
        kv_tokens_max=limits.kv_tokens_max,
        first_token_s=_first_token_s(served, steps.step_table(1, budget), budget),
        shared_prompt_tokens=_shared(served),
        noise_ratio=_noise(samples, steps) if kind == "steps" else 0.0,
        seen=seen,
    )


def _step_tokens(served: Sequence[ServedRequest], observed: Sequence[Step]) -> int:
    """The tokens of a step that explain the steps with prompts best.

    Budgets that no step has reached are as good as each other: then it is what engines usually
    have, or else the least of them.
    """
    errors = []
    for budget in _BUDGETS:
        samples = step_samples(served, observed, budget)
        errors.append(float(np.abs(_errors(samples, fit_steps(samples))).mean()))
    good = [b for b, e in zip(_BUDGETS, errors, strict=True) if e <= _AS_GOOD * min(errors)]
    return _BUDGET_USUAL if _BUDGET_USUAL in good else good[0]


def _errors(
    samples: Sequence[StepSample], steps: FittedSteps
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    loads = np.array([(1.0, *sample[:3]) for sample in samples])
    return relative_errors(steps.planes, loads, np.array([s.step_s for s in samples]))


def _noise(samples: Sequence[StepSample], steps: FittedSteps) -> float:
    """Of steps that only decode; stalls, being rare, are not in it."""
    plain = [sample for sample in samples if not sample.prefill_tokens]
    if not plain:
        return 0.0
    table = steps.step_table(math.ceil(max(sample.running for sample in plain)), 1)
    pairs = [(s.step_s, table.step_s(round(s.running), round(s.kv_tokens))) for s in plain]
    errors = np.array([taken / told - 1.0 for taken, told in pairs if told > 0.0] or [0.0])
    spread = float(np.median(np.abs(errors - np.median(errors))))
    return min(NOISE_MAX_RATIO, _OF_NORMAL * spread)


def _first_token_s(served: Sequence[ServedRequest], table: StepTable, budget: int) -> float:
    """What first tokens took beyond their steps, where no other request was there; 0: unknown.

    Best of those that came to an engine which had nothing to do for a while, as most such requests
    do: one that follows another at once finds caches warm.
    """
    starts = [each.dispatched_s for each in served]
    ends = sorted(each.last_s for each in served)
    alone: list[float] = []
    rested: list[float] = []
    for each in served:
        if each.first_s is None:
            continue
        gone = bisect_right(ends, each.dispatched_s)
        if bisect_left(starts, each.first_s) - gone != 1:
            continue
        whole, rest = divmod(each.computed_tokens, budget)
        predicted_s = whole * table.step_s(0, 0, budget)
        predicted_s += table.step_s(0, 0, rest) if rest else 0.0
        alone.append(each.first_s - each.dispatched_s - predicted_s)
        if gone and each.dispatched_s - ends[gone - 1] >= _REST_S:
            rested.append(alone[-1])
    found = rested if len(rested) >= _ALONE_MIN else alone
    if len(found) < _ALONE_MIN:
        return 0.0
    return max(0.0, float(np.median(found)))


def _shared(served: Sequence[ServedRequest]) -> int:
    cached = [each.cached_tokens for each in served if each.cached_tokens is not None]
    if not cached:
        return 0
    found = int(np.quantile(cached, _SHARED_QUANTILE, method="lower"))
    return min(found, min(each.prompt_tokens for each in served) - 1)


def _seen(served: Sequence[ServedRequest], samples: Sequence[StepSample]) -> SeenLoad:
    if not samples:
        raise ConfigError("records", len(served), "streamed answers with their token counts")
    return SeenLoad(
        requests=len(served),
        duration_s=max(e.last_s for e in served) - served[0].dispatched_s,
        running_max=max(1, math.ceil(max(sample.running for sample in samples) - 0.01)),
        kv_tokens_max=math.ceil(max(sample.kv_tokens for sample in samples)),
        prompt_tokens_max=max(each.prompt_tokens for each in served),
        output_tokens_max=max(each.output_tokens for each in served),
        prefill_step_tokens_max=math.ceil(max(sample.prefill_tokens for sample in samples)),
    )
