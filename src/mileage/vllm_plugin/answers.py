"""Answers: how fast the requests that decode get their tokens, by the steps of their engine."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mileage.measure.quantiles import quantile, rank
from mileage.policy.limits.limit import RequestSample

__all__ = ["Answers", "Step"]

_GAP_QUANTILE = 0.99
_STEPS_KEPT = 16_384
_STARTS_KEPT = 4096
_WELL = frozenset({"FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_REPETITION"})
"""Of requests that ended, by the name of their status: those that tell how fast the engine is."""


class Step(NamedTuple):
    """One step that is over. `running` are those that decoded, and those in their prompts."""

    ended_s: float
    took_s: float
    running: int
    decoding: int
    kv_tokens: int
    prefill_tokens: int


class _Answer:
    """One request that decodes. `first_at`: steps that were over when its first token came."""

    __slots__ = ("arrived_s", "first_at", "first_s", "request", "started_s")

    def __init__(
        self, request: Any, first_at: int, first_s: float, arrived_s: float, started_s: float | None
    ) -> None:
        self.request = request
        self.first_at, self.first_s = first_at, first_s
        self.arrived_s, self.started_s = arrived_s, started_s


class Answers:
    """Those that decode share their steps, so that an engine's steps are the gaps of all of them.

    One that is preempted is taken to have its gaps as the others meanwhile. Of a long answer the
    latest 16,384 steps count.
    """

    def __init__(self, itl_target_s: float | None) -> None:
        self._target_s = math.inf if itl_target_s is None else itl_target_s
        self._steps: list[Step] = []
        self._dropped = 0
        self._long: list[int] = []
        """Counts of steps with which long ones ended."""
        self._answers: dict[str, _Answer] = {}
        self._starts: dict[str, float] = {}
        self._samples: list[RequestSample] = []

    @property
    def steps(self) -> int:
        """Steps so far."""
        return self._dropped + len(self._steps)

    def took(self, step: Step, begun: Iterable[str], started_s: float) -> None:
        """A step is over, in which these requests ran for the first time."""
        self._steps.append(step)
        if step.took_s > self._target_s:
            self._long.append(self.steps)
        for name in begun:
            self._starts[name] = started_s
        if len(self._steps) >= 2 * _STEPS_KEPT:
            del self._steps[:_STEPS_KEPT]
            self._dropped += _STEPS_KEPT
            del self._long[: bisect_right(self._long, self._dropped)]

    def observe(self, decoding: Sequence[Any], requests: Any, offset_s: float) -> None:
        """These decode now, and `requests`, by id, are all that the engine has. `offset_s` added to
        a request's own arrival time is monotonic time."""
        answers = self._answers
        for request in decoding:
            name = request.request_id
            if name not in answers:
                now_s = self._steps[-1].ended_s if self._steps else -math.inf
                arrived_s = min(now_s, request.arrival_time + offset_s)
                started_s = self._starts.pop(name, None)
                answers[name] = _Answer(request, self.steps, now_s, arrived_s, started_s)
        if len(answers) > len(decoding):
            for name in [each for each in answers if each not in requests]:
                self._end(answers.pop(name))
        if len(self._starts) > _STARTS_KEPT:
            self._starts = {k: at_s for k, at_s in self._starts.items() if k in requests}

    def spare_gaps(self, decoding: Iterable[Any]) -> list[int]:
        """Of each of these: if the next gap were its last one, how many of its gaps might be long
        and the p99 of all still within the target, less those that were long so far."""
        found = []
        for answer in self._of(decoding):
            gaps = self.steps - answer.first_at + 1
            long = len(self._long) - bisect_right(self._long, answer.first_at)
            found.append(gaps - rank(_GAP_QUANTILE, gaps) - long)
        return found

    def past(self, decoding: Iterable[Any], now_s: float) -> list[tuple[int, float]]:
        """Of each of these: its gaps so far, and seconds since its first token."""
        return [(self.steps - a.first_at, now_s - a.first_s) for a in self._of(decoding)]

    def _of(self, decoding: Iterable[Any]) -> Iterable[_Answer]:
        return (self._answers[r.request_id] for r in decoding if r.request_id in self._answers)

    def samples(self) -> tuple[RequestSample, ...]:
        """Of the requests that have ended well since this was last asked."""
        samples, self._samples = tuple(self._samples), []
        return samples

    def _end(self, answer: _Answer) -> None:
        """The request is gone; what ended badly teaches nothing."""
        request = answer.request
        since = max(0, answer.first_at - self._dropped)
        steps = self._steps[since : since + max(0, request.num_output_tokens - 1)]
        if request.status.name not in _WELL or not steps or answer.first_s == -math.inf:
            return
        count = len(steps)
        started_s = answer.started_s
        self._samples.append(
            RequestSample(
                prompt_tokens=request.num_prompt_tokens,
                output_tokens=request.num_output_tokens,
                stream=True,
                ttft_s=answer.first_s - answer.arrived_s,
                service_ttft_s=None if started_s is None else answer.first_s - started_s,
                itl_p99_s=quantile([step.took_s for step in steps], _GAP_QUANTILE),
                step_s=sum(step.took_s for step in steps) / count,
                running_mean=sum(step.running for step in steps) / count,
                kv_tokens_mean=sum(step.kv_tokens for step in steps) / count,
                prefill_tokens_per_step=sum(step.prefill_tokens for step in steps) / count,
                decoding_mean=sum(step.decoding for step in steps) / count,
                prefill_tokens=request.num_prompt_tokens,
            )
        )
