"""PrefillPlan: the policies inside an engine: whose prompt is next, and how much of it."""

from __future__ import annotations

import math
from bisect import insort

from mileage.policy.budget.choose import make_budget
from mileage.policy.budget.policy import Pending, StepLoad
from mileage.policy.ordering.choose import make_ordering
from mileage.policy.ordering.deadline import renewed_deadline_s
from mileage.policy.ordering.policy import Prompt
from mileage.policy.prefill import PrefillConfig
from mileage.sim.sequence import PREFILLING, WAITING, Sequence

__all__ = ["PrefillPlan"]


class PrefillPlan:
    """Keeps all that is to be prefilled in order: what waits, and what is in the middle.

    A sequence has its key when it comes, by what of it is in the cache then, and keeps it when it
    is preempted. One that cannot meet its deadline any more, even if it were alone from now on, is
    given another one, twice as long after its arrival, and so on: what is lost is not to make
    others late as well, and still none waits for ever, as no newcomer comes before a deadline that
    has come near.
    """

    __slots__ = ("_budget", "_number", "_order", "_ordering", "_slo")

    def __init__(self, config: PrefillConfig) -> None:
        self._budget = make_budget(config.budget, config.slo.itl_s, config.model)
        self._ordering = make_ordering(config.ordering, config.shortest)
        self._slo = config.slo
        self._order: list[tuple[float, int, Sequence]] = []
        self._number = 0

    def add(self, sequence: Sequence, known: int, now_s: float) -> None:
        """A sequence waits from now on, the first time; `known` of its tokens are in the cache."""
        if math.isnan(sequence.arrived_s):
            sequence.arrived_s = now_s
        sequence.known = known
        target_s = self._slo.ttft_target_s(self._alone_s(sequence))
        if target_s is not None:
            sequence.deadline_s = sequence.arrived_s + target_s
        self._insert(sequence)

    def again(self, sequence: Sequence) -> None:
        """A sequence that was here before waits again: it computes everything anew."""
        sequence.known = 0
        self._enter(sequence)

    def _insert(self, sequence: Sequence) -> None:
        tokens, alone_s = sequence.target - sequence.known, self._alone_s(sequence)
        prompt = Prompt(sequence.arrived_s, sequence.deadline_s, tokens, alone_s)
        sequence.key = self._ordering.key(prompt)
        self._enter(sequence)

    def _enter(self, sequence: Sequence) -> None:
        self._number += 1
        sequence.place = self._number
        insort(self._order, (sequence.key, self._number, sequence))

    def _alone_s(self, sequence: Sequence) -> float:
        done = _done(sequence)
        return self._budget.alone_s(sequence.target - done, done)

    def pending(self, now_s: float) -> list[Sequence]:
        """All that is to be prefilled, in order."""
        order = self._order = [
            entry
            for entry in self._order
            if entry[2].state in (WAITING, PREFILLING) and entry[2].place == entry[1]
        ]
        while order:
            first = order[0][2]
            soonest_s = now_s + self._alone_s(first)
            if soonest_s <= first.deadline_s or first.produced:
                break
            first.deadline_s = renewed_deadline_s(first.arrived_s, first.deadline_s, soonest_s)
            del order[0]
            self._insert(first)
            if order[0][2] is first:
                break
        return [sequence for _, _, sequence in order]

    def tokens(self, pending: list[Sequence], load: StepLoad, now_s: float) -> tuple[int, float]:
        """Prompt tokens of the next step; and where that is 0, when to ask again (inf: not before
        something changes)."""
        each = []
        for sequence in pending:
            done = _done(sequence)
            # What was preempted has its first token; it is late for the next one anyway.
            deadline_s = math.inf if sequence.produced else sequence.deadline_s
            each.append(Pending(deadline_s, sequence.target - done, done))
        return self._budget.tokens(load, each, now_s), self._budget.again_s

    def learn(
        self, decoding: int, kv_tokens: float, tokens: int, pairs: float, took_s: float
    ) -> None:
        """A step with this load is over; of a stretch, the mean step."""
        self._budget.learn(decoding, kv_tokens, tokens, pairs, took_s)


def _done(sequence: Sequence) -> int:
    """Tokens that need not be computed any more."""
    return sequence.computed if sequence.state == PREFILLING else sequence.known
