"""StepModel: what each thing in a step costs there, so that all of them make up the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mileage.costmodel.plane import Features
from mileage.ledger.columns import Floats

__all__ = ["StepCosts", "StepModel"]


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Of each step, in seconds: what it costs whatever is in it, and what each thing adds."""

    fixed_s: Floats
    """Mostly the weights, which are read once for all."""
    decode_s: Floats
    """Per token of an answer."""
    kv_s: Floats
    """Per token of context of those that decode."""
    prefill_s: Floats
    """Per token of prompts."""


class StepModel:
    """A step takes as long as the larger of one or two planes over what is in it.

    Where it is two, of which one says how long reading memory takes and the other how long
    computing does, none of them alone tells what a token costs: a step with few tokens is on the
    one, with many on the other. The cost of each is the mean of its slope along the way on which
    the step fills up evenly, the Aumann-Shapley price: it is that of the first plane up to where
    the second one takes over, and that of the second from there. Costs then sum to the step, and
    do not jump where the planes meet.

    Source: R. J. Aumann, L. S. Shapley, "Values of Non-Atomic Games", 1974; L. J. Billera, D. C.
    Heath, "Allocation of shared costs: a set of axioms yielding a unique procedure", Mathematics of
    Operations Research 7, 1982.
    """

    def __init__(self, planes: Sequence[Features]) -> None:
        """One or two planes (s, s per decode token, s per token of context, s per prompt token)."""
        ordered = sorted(planes, key=lambda plane: -plane[0])
        self._low, self._high = ordered[0], ordered[-1]
        self.planes = tuple(planes)

    def costs(self, decode_tokens: Floats, kv_tokens: Floats, prefill_tokens: Floats) -> StepCosts:
        """Of steps with so many tokens of each kind."""
        low, high = self._low, self._high
        loads = (decode_tokens, kv_tokens, prefill_tokens)
        on_low = sum(slope * load for slope, load in zip(low[1:], loads, strict=True))
        on_high = sum(slope * load for slope, load in zip(high[1:], loads, strict=True))
        begins, steeper = low[0] - high[0], np.asarray(on_high - on_low, dtype=np.float64)
        # Part of the way on which the lower plane is below: all of it, where they never meet.
        above = steeper > begins
        part = np.where(above, begins / np.where(above, steeper, 1.0), 1.0)
        rates = [part * a + (1.0 - part) * b for a, b in zip(low[1:], high[1:], strict=True)]
        return StepCosts(np.full(len(part), low[0]), *rates)

    def step_s(self, decode_tokens: Floats, kv_tokens: Floats, prefill_tokens: Floats) -> Floats:
        """Seconds of steps with so many tokens of each kind."""
        loads = np.stack([np.ones(len(kv_tokens)), decode_tokens, kv_tokens, prefill_tokens])
        taken: Floats = (np.array(self.planes) @ loads).max(axis=0)
        return taken
