"""Prompt runs: times in which there was always a prompt to compute, and what they tell of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mileage.ledger.columns import Bools, Floats, Ints, sums
from mileage.ledger.observed_steps import ObservedSteps
from mileage.ledger.prompt_places import place_prompts

__all__ = ["PromptRuns", "StepLoads", "prompt_runs"]

_LONG_STEPS: Final = 4.0
_BUDGET_QUANTILE: Final = 0.95
_FULL_RATIO: Final = 0.95


@dataclass(frozen=True, slots=True)
class StepLoads:
    """What steps decoded, and how long they took."""

    decode_tokens: Floats
    kv_tokens: Floats
    took_s: Floats
    inside: Bools
    """Those that lie in the window: of others not all requests are known."""


@dataclass(frozen=True, slots=True)
class PromptRuns:
    """Each from the first step that could have a prompt to one after which none is left."""

    mixed: Bools
    """Of each step: whether it is in a run."""
    run: Ints
    """Of each step in one: which."""
    sizes: Floats
    """Steps of each."""
    whole: Bools
    """Those that lie in the window, and decoded in every step."""
    budget_tokens: float
    """The most tokens that a step seems to take; 0: no run tells."""
    mean_steps: float
    """Steps of the run that a prompt token is in, on average."""

    def samples(
        self, steps: ObservedSteps, loads: StepLoads, budget_tokens: float, mean_steps: float
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Decoded tokens, their context, prompt tokens and seconds of steps to learn from.

        Steps that only decoded are as they are. Those of a run have all of its prompts together,
        but which step had how much is not seen: so each run is one sample, its mean step. Where
        runs are long, that hides what a small part of a prompt costs: there steps are filled up
        to the most that a step takes, first come, first served, as engines do it.
        """
        if mean_steps > _LONG_STEPS and budget_tokens > 0.0:
            budget = 2.0 ** np.ceil(np.log2(_FULL_RATIO * budget_tokens))
            room = np.maximum(1.0, budget - loads.decode_tokens)
            places = place_prompts(steps, room, exact=True)
            prefill = sums(places.tokens, places.steps, len(room))
            seen = loads.inside & (loads.decode_tokens > 0.0)
            return (
                loads.decode_tokens[seen],
                loads.kv_tokens[seen],
                prefill[seen],
                loads.took_s[seen],
            )
        plain = loads.inside & ~self.mixed & (loads.decode_tokens > 0.0)
        tokens = sums(steps.job_tokens, steps.job_steps, len(plain))

        def column(values: Floats) -> Floats:
            means = self._sums(values)[self.whole] / self.sizes[self.whole]
            joined: Floats = np.concatenate((values[plain], means))
            return joined

        return (
            column(loads.decode_tokens),
            column(loads.kv_tokens),
            column(tokens),
            column(loads.took_s),
        )

    def dearest(
        self, steps: ObservedSteps, loads: StepLoads
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """As `samples`, where prompts may have had fewer tokens to compute than is known: each
        prompt by itself, in the steps after the one that completed the prompt before. A part of it
        may be in that one, and a part of the next one in its last step.
        """
        done = np.unique(steps.job_steps)
        count = len(loads.took_s)
        starts = np.concatenate(([0], done[:-1] + 1)) if len(done) else done
        since = np.searchsorted(steps.begin_s, steps.job_ready_s, side="left")
        since = np.minimum(since, steps.job_steps)
        first = np.full(count + 1, count)
        np.minimum.at(first, steps.job_steps, since)
        starts = np.maximum(starts, first[done])
        usable = np.concatenate(([0.0], np.cumsum(~(loads.inside & (loads.decode_tokens > 0.0)))))
        whole = usable[done + 1] == usable[starts]
        starts, ends = starts[whole], done[whole] + 1
        tokens = sums(steps.job_tokens, steps.job_steps, count)
        plain = loads.inside & ~self.mixed & (loads.decode_tokens > 0.0)

        def column(values: Floats) -> Floats:
            upto = np.concatenate(([0.0], np.cumsum(values)))
            means = (upto[ends] - upto[starts]) / (ends - starts)
            joined: Floats = np.concatenate((values[plain], means))
            return joined

        return (
            column(loads.decode_tokens),
            column(loads.kv_tokens),
            column(tokens),
            column(loads.took_s),
        )

    def _sums(self, values: Floats) -> Floats:
        return sums(values[self.mixed], self.run, len(self.sizes))


def prompt_runs(steps: ObservedSteps, loads: StepLoads) -> PromptRuns:
    """A prompt may be in any step that began after it came, up to the one that completed it."""
    count = len(loads.took_s)
    since = np.searchsorted(steps.begin_s, steps.job_ready_s, side="left")
    changes = np.zeros(count + 1)
    np.add.at(changes, np.minimum(since, steps.job_steps), 1.0)
    np.add.at(changes, steps.job_steps + 1, -1.0)
    pending = np.cumsum(changes)[:count]
    mixed = pending > 0.5
    completed = sums(np.ones(len(steps.job_steps)), steps.job_steps, count)
    ends = mixed & (pending - completed < 0.5)
    run: Ints = (np.cumsum(ends) - ends)[mixed]
    runs = int(run.max()) + 1 if len(run) else 0
    sizes = np.maximum(1.0, sums(np.ones(len(run)), run, runs))
    usable = loads.inside & (loads.decode_tokens > 0.0)
    whole = sums((~usable[mixed]).astype(np.float64), run, runs) == 0.0
    prompts = sums(steps.job_tokens, steps.job_steps, count)[mixed]
    tokens = sums(prompts, run, runs)
    each = (tokens + sums(loads.decode_tokens[mixed], run, runs)) / sizes
    total = float(tokens[whole].sum())
    return PromptRuns(
        mixed=mixed,
        run=run,
        sizes=sizes,
        whole=whole,
        budget_tokens=float(np.quantile(each[whole], _BUDGET_QUANTILE)) if whole.any() else 0.0,
        mean_steps=float((tokens * sizes)[whole].sum()) / total if total > 0.0 else 0.0,
    )
