"""Estimate from token times: steps are seen, what prompts took of them is inferred."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.columns import Floats, sums
from mileage.ledger.estimate import Estimate
from mileage.ledger.flights import Flights
from mileage.ledger.observed_steps import ObservedSteps, observe_steps
from mileage.ledger.prompt_places import PromptPlaces, place_prompts, room_of
from mileage.ledger.prompt_runs import StepLoads, prompt_runs
from mileage.ledger.step_fit import StepFit, StepFitState
from mileage.ledger.step_shares import Ratios, StepUses, weigh_uses

__all__ = ["SeenFit", "SeenFitState", "estimate_token_times"]

_KEPT_RATIO: Final = 0.99
_GAIN: Final = 0.2
_ERROR_RATIO, _ERROR_STEPS = 0.12, 0.2
"""Measured against the steps of simulated engines: see docs/explanation/attribution.md."""
_WAIT_STEPS, _WAIT_MIN_S = 8, 0.25
_WAIT_PART: Final = 0.02


class SeenFitState(msgspec.Struct, frozen=True, array_like=True):
    """What was learned."""

    steps: StepFitState = StepFitState()
    budget_tokens: float = 0.0
    mean_steps: float = 0.0


class SeenFit:
    """What the steps that were seen teach: their costs, and how prompts are cut."""

    def __init__(self, state: SeenFitState | None = None) -> None:
        state = state or SeenFitState()
        self.steps = StepFit(state.steps)
        self._budget_tokens = state.budget_tokens
        self._mean_steps = state.mean_steps

    def state(self) -> SeenFitState:
        """All of it."""
        return SeenFitState(self.steps.state(), self._budget_tokens, self._mean_steps)

    def learn(self, steps: ObservedSteps, loads: StepLoads, *, exact: bool) -> None:
        """Take in the steps of one window."""
        runs = prompt_runs(steps, loads)
        self._budget_tokens = max(_KEPT_RATIO * self._budget_tokens, runs.budget_tokens)
        if runs.mean_steps > 0.0:
            gain = _GAIN if self._mean_steps > 0.0 else 1.0
            self._mean_steps += gain * (runs.mean_steps - self._mean_steps)
        if exact:
            samples = runs.samples(steps, loads, self._budget_tokens, self._mean_steps)
        else:
            samples = runs.dearest(steps, loads)
        self.steps.learn(*samples, exact=exact)


def estimate_token_times(
    flights: Flights, length_s: float, fit: SeenFit, config: AttributionConfig, ratios: Ratios
) -> Estimate | None:
    """Each step is seen as the gap between tokens; what it took longer than its decodes explain was
    for prompts. It is then shared as a step that the engine told. None where steps do not show, or
    too few were seen so far to tell what they cost.
    """
    steps = observe_steps(flights, length_s)
    if steps is None:
        return None
    count = len(steps.end_s)
    took_s = steps.end_s - steps.begin_s
    loads = StepLoads(
        decode_tokens=sums(steps.decode_tokens, steps.steps, count),
        kv_tokens=sums(steps.context_tokens, steps.steps, count),
        took_s=took_s,
        inside=(steps.begin_s >= 0.0) & (steps.end_s <= length_s) & (took_s > 0.0),
    )
    exact = not bool(np.isnan(flights.cached_tokens).all())
    fit.learn(steps, loads, exact=exact)
    model = fit.steps.model
    if model is None:
        return None
    room = room_of(model, loads.decode_tokens, loads.kv_tokens, took_s)
    places = place_prompts(steps, room, exact=exact)
    uses = _uses(steps, places)
    parts = weigh_uses(uses, count, model, ratios, config.decode_cost_tokens)
    total = sums(parts.weights, uses.steps, count)
    within_s = np.clip(steps.end_s, 0.0, length_s) - np.clip(steps.begin_s, 0.0, length_s)
    at, size = uses.steps, len(flights)
    share_s = parts.weights / np.maximum(total[at], 1e-300) * within_s[at]
    prefill_s = share_s * parts.prefill_ratio
    seen = loads.inside & (loads.decode_tokens > 0.0)
    step_s = float(np.median(took_s[seen])) if seen.any() else length_s
    return Estimate(
        weights=sums(share_s, uses.requests, size),
        prefill=sums(prefill_s, uses.requests, size),
        recomputed=sums(prefill_s * parts.recomputed_ratio, uses.requests, size),
        error_ratio=_ERROR_RATIO,
        error_s=_ERROR_STEPS * step_s,
        saturated=steps.stalls > 0 or _waits(steps, places, loads, room),
    )


def _waits(steps: ObservedSteps, places: PromptPlaces, loads: StepLoads, room: Floats) -> bool:
    """Prompts wait for several steps in which there was room for them: the engine had no place."""
    jobs = len(steps.job_steps)
    if not jobs:
        return False
    began = steps.job_steps.copy()
    np.minimum.at(began, places.jobs, places.steps)
    since = np.minimum(np.searchsorted(steps.begin_s, steps.job_ready_s, side="left"), began)
    busy = (room > 0.0) | (sums(places.tokens, places.steps, len(loads.took_s)) > 0.0)
    free = np.concatenate(([0.0], np.cumsum(~busy & (loads.decode_tokens > 0.0))))
    free_s = np.concatenate(([0.0], np.cumsum(np.where(busy, 0.0, loads.took_s))))
    waited = (free[began] - free[since] >= _WAIT_STEPS) & (
        free_s[began] - free_s[since] >= _WAIT_MIN_S
    )
    waited &= loads.inside[steps.job_steps] & steps.job_seen
    return bool(waited.sum() >= max(1.0, _WAIT_PART * jobs))


def _uses(steps: ObservedSteps, places: PromptPlaces) -> StepUses:
    at = np.concatenate((steps.steps, places.steps))
    order = np.argsort(at, kind="stable")
    none = np.zeros(len(steps.steps))
    again = np.minimum(places.tokens, steps.job_again[places.jobs])

    def joined(one: Floats, other: Floats) -> Floats:
        rows: Floats = np.concatenate((one, other))[order]
        return rows

    return StepUses(
        at[order],
        np.concatenate((steps.flights, steps.job_flights[places.jobs]))[order],
        joined(none, places.tokens),
        joined(steps.decode_tokens, np.zeros(len(places.steps))),
        joined(steps.context_tokens, places.before_tokens),
        joined(none, again),
    )
