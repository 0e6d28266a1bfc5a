"""Flows: requests as an engine had them, as far as first and last tokens tell, over time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from mileage.ledger.columns import Bools, Floats, Ints
from mileage.ledger.flights import Flights
from mileage.ledger.fluid import Fluid

__all__ = ["Flows", "PromptSpans", "flows_of", "pace_of", "prompt_spans"]

_PACE_ROUNDS: Final = 4
_USUAL_STEP_S: Final = 0.03
_FIRST_MIN_RATIO: Final = 0.05
_TOGETHER_RATIO, _TOGETHER_MAX_S = 0.25, 0.005
_TINY: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Flows:
    """One row per request; seconds after the window's start."""

    start_s: Floats
    first_s: Floats
    """First token; where it is not known, a guess by how long its answer must have taken."""
    end_s: Floats
    prompt_tokens: Floats
    uncached_tokens: Floats
    steps: Floats
    """Tokens of its answer after the first."""
    answered: Bools
    """It had tokens: all of its prompt was computed."""

    def later(self, by_s: float) -> Flows:
        """The same on a clock that began so much earlier."""
        return Flows(
            self.start_s + by_s,
            self.first_s + by_s,
            self.end_s + by_s,
            self.prompt_tokens,
            self.uncached_tokens,
            self.steps,
            self.answered,
        )

    def those(self, kept: Bools) -> Flows:
        """Some of them."""
        return Flows(*(getattr(self, each.name)[kept] for each in fields(self)))

    def joined(self, others: Flows) -> Flows:
        """With others behind them."""
        return Flows(
            *(
                np.concatenate((getattr(self, each.name), getattr(others, each.name)))
                for each in fields(self)
            )
        )


def flows_of(flights: Flights) -> Flows:
    """The flights of a window."""
    steps = np.maximum(0.0, flights.output_tokens - 1.0)
    known = ~np.isnan(flights.first_s)
    span_s = flights.end_s - np.where(known, flights.first_s, flights.end_s)
    paced = known & (steps > 0.0) & (span_s > 0.0)
    usual_s = float(np.median(span_s[paced] / steps[paced])) if paced.any() else _USUAL_STEP_S
    earliest_s = flights.start_s + _FIRST_MIN_RATIO * (flights.end_s - flights.start_s)
    guess_s = np.maximum(earliest_s, flights.end_s - steps * usual_s)
    return Flows(
        flights.start_s,
        np.where(known, flights.first_s, guess_s),
        flights.end_s,
        flights.prompt_tokens,
        flights.uncached_tokens,
        steps,
        known | (flights.output_tokens > 0.0),
    )


def pace_of(fluid: Fluid, flows: Flows) -> Floats:
    """Steps per second of those that decode, in each slot.

    Requests that decode together share their steps, so each answer tells the mean pace over its own
    time. The pace that explains all of them is found by multiplicative corrections, from the mean
    of those present (as W. H. Richardson, "Bayesian-based iterative method of image restoration",
    1972, and L. B. Lucy, 1974).
    """
    long = flows.steps >= 1.0
    first_s, end_s, steps = flows.first_s[long], flows.end_s[long], flows.steps[long]
    present = fluid.levels(first_s, end_s, np.ones(len(steps)))
    own = steps / np.maximum(end_s - first_s, _TINY)
    pace = fluid.levels(first_s, end_s, own) / np.maximum(present, _TINY)
    weights = np.maximum(fluid.levels(first_s, end_s, steps), _TINY)
    for _ in range(_PACE_ROUNDS):
        made = np.maximum(fluid.between(fluid.integral(pace), first_s, end_s), _TINY)
        pace = pace * fluid.levels(first_s, end_s, steps * steps / made) / weights
    found: Floats = np.where(present > _TINY, np.maximum(pace, 0.0), 0.0)
    return found


@dataclass(frozen=True, slots=True)
class PromptSpans:
    """When prompts were computed."""

    began_s: Floats
    groups: Ints
    """Prompts whose first tokens came in the same step have the same number, from 0."""


def prompt_spans(fluid: Fluid, flows: Flows, pace: Floats) -> PromptSpans:
    """First come, first served: none began before the one before was complete; and not before the
    step was over during which it came, half of one on average. Those that were complete in the same
    step were computed together.
    """
    order = np.argsort(flows.first_s, kind="stable")
    first_s = flows.first_s[order]
    place = (flows.start_s - fluid.begin_s) / fluid.slot_s
    slot = np.clip(place, 0.0, fluid.count - 1.0).astype(np.int64)
    step_s = np.where(pace[slot] > 0.0, 1.0 / np.maximum(pace[slot], 1e-3), 0.0)
    wait_s = np.minimum(0.5 * step_s, 0.5 * (flows.first_s - flows.start_s))
    ready_s = np.minimum(flows.start_s + wait_s, flows.first_s)[order]
    apart_s = np.minimum(_TOGETHER_MAX_S, _TOGETHER_RATIO * step_s[order])
    fresh = np.diff(first_s, prepend=-np.inf) > apart_s
    group = np.cumsum(fresh) - 1
    count = int(fresh.sum())
    earliest_s = np.full(count, np.inf)
    np.minimum.at(earliest_s, group, ready_s)
    complete_s = np.full(count, -np.inf)
    np.maximum.at(complete_s, group, first_s)
    before_s = np.concatenate(([-np.inf], complete_s[:-1]))
    began_s, groups = np.empty(len(order)), np.empty(len(order), dtype=np.int64)
    began_s[order] = np.minimum(np.maximum(earliest_s, before_s)[group], first_s)
    groups[order] = group
    return PromptSpans(began_s, groups)
