"""LatencyModel: what one replica's gaps between tokens will be at another number of requests."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mileage.costmodel.plane import Features
from mileage.costmodel.step_time import StepTimeFit
from mileage.policy.limits.limit import RequestSample
from mileage.policy.limits.readings import count_of, positive

__all__ = ["LatencyModel"]

_RECENT = 64
_RECENT_S = 120.0
_COMPANY = 1.2
"""Requests that run at once, on average, from which on one of them is in company."""
_ALONE_RATIO = 0.3
"""Tokens per second of a request alone, over those of a full replica, that make it worth it."""
_PREFILL_TOKENS_MAX = 1_000_000.0


class _Recent(NamedTuple):
    now_s: float
    began_s: float
    running: float
    kv_tokens: float
    prefill_tokens: float
    prompt_tokens: float
    itl_p99_s: float | None


class _Line(NamedTuple):
    """Of the step time, over the number of requests (with their context) and prompt tokens."""

    fixed_s: float
    request_s: float
    prefill_s: float


class LatencyModel:
    """The fitted step time, the mix of the requests, and by how much the worst gaps exceed a step.

    The mix (tokens of context and tokens prefilled per step, each per running request) and the
    stalls are of the latest requests, none older than two minutes; the fit remembers longer. A
    stall is the p99 of a request's own gaps less the mean step that the fit gives for what the
    replica did meanwhile: prompts of others that were prefilled in one go, mostly. It hardly
    depends on how many requests run, so it is added to the step time and does not scale it.
    """

    __slots__ = (
        "_context_tokens",
        "_known",
        "_recent",
        "_stalls",
        "fit",
        "prefill_tokens_ratio",
        "prompt_tokens",
        "running_seen",
    )

    def __init__(self) -> None:
        self.fit = StepTimeFit()
        self._recent: deque[_Recent] = deque(maxlen=_RECENT)
        self._context_tokens = 0.0
        self._known: tuple[int, Sequence[_Line]] | None = None
        """Samples of the fit, and its lines for the mix of now; None: to be computed anew."""
        self._stalls: tuple[float, list[float]] | None = None
        """The start that they were asked for, and the stalls; None: to be computed anew."""
        self.running_seen = 0.0
        """The most requests at once that the latest ones have met; 0 without any."""
        self.prompt_tokens = 0.0
        """Mean prompt of the latest requests."""
        self.prefill_tokens_ratio = 0.0
        """Tokens prefilled in each step, per running request."""

    @property
    def recent(self) -> int:
        """Requests that the mix is taken from."""
        return len(self._recent)

    def learn(self, samples: Sequence[RequestSample], now_s: float) -> None:
        """Take in what has ended by `now_s`, and let go of what ended long ago."""
        recent = self._recent
        since_s = now_s - _RECENT_S
        if not samples and not (recent and recent[0].now_s < since_s):
            return
        self._stalls = self._known = None
        for sample in samples:
            self._learn(sample, now_s)
        while recent and recent[0].now_s < since_s:
            recent.popleft()
        running = kv_tokens = prefill_tokens = prompt_tokens = most = 0.0
        for _, _, requests, context, prefilled, prompt, _ in recent:
            running += requests
            kv_tokens += context
            prefill_tokens += prefilled
            prompt_tokens += prompt
            if requests > most:
                most = requests
        self._context_tokens = kv_tokens / (running or 1.0)
        self.prefill_tokens_ratio = prefill_tokens / (running or 1.0)
        self.prompt_tokens = prompt_tokens / max(1, len(recent))
        self.running_seen = most

    def _learn(self, sample: RequestSample, now_s: float) -> None:
        """Figures that cannot be are left out."""
        running = positive(sample.running_mean)
        if running is None:
            return
        kv_tokens = count_of(sample.kv_tokens_mean)
        prefill_tokens = count_of(sample.prefill_tokens_per_step)
        prompt_tokens = count_of(sample.prompt_tokens)
        step_s, itl_p99_s = positive(sample.step_s), positive(sample.itl_p99_s)
        if step_s is not None:
            self.fit.learn(running, kv_tokens, prefill_tokens, step_s)
        stay_s = count_of(sample.service_ttft_s) + (step_s or 0.0) * count_of(sample.output_tokens)
        self._recent.append(
            _Recent(
                now_s, now_s - stay_s, running, kv_tokens, prefill_tokens, prompt_tokens, itl_p99_s
            )
        )

    def _lines(self) -> Sequence[_Line]:
        """The planes of the fit for the present mix; none until there is a fit."""
        known, samples = self._known, self.fit.samples
        if known is None or known[0] != samples:
            context_tokens = self._context_tokens
            lines = [
                _Line(fixed, per_request + per_kv * context_tokens, per_prefill)
                for fixed, per_request, per_kv, per_prefill in self.fit.planes
            ]
            known = self._known = (samples, lines)
        return known[1]

    def step_s(self, running: float, prefill_tokens: float | None = None) -> float:
        """Time of a step with as many requests of the present mix; inf until there is a fit.

        `prefill_tokens` None: the mean that goes with them.
        """
        if prefill_tokens is None:
            prefill_tokens = running * self.prefill_tokens_ratio
        return _step_s(self._lines(), running, prefill_tokens)

    def stalls(self, since_s: float) -> list[float]:
        """Stalls in seconds, ascending, of requests that began no earlier and ran in company.

        One that runs alone waits for no other's prompt: it says nothing about those that do not.
        """
        known = self._stalls
        if known is None or known[0] != since_s:
            found = _stalls(self._recent, since_s, self.fit.planes)
            known = self._stalls = (since_s, found)
        return known[1]

    def most_within(self, cap_s: float, stall_s: float, ceiling: int) -> int:
        """The most requests of the present mix whose step and stall stay within `cap_s`; or 0."""
        lines, ratio = self._lines(), self.prefill_tokens_ratio
        if not lines:
            return 0
        most = float(ceiling)
        for fixed_s, request_s, prefill_s in lines:
            rise_s = request_s + ratio * prefill_s
            spare_s = cap_s - stall_s - fixed_s
            if rise_s * ceiling > spare_s:
                most = min(most, spare_s / rise_s) if rise_s > 0.0 else 0.0
        found = max(0, math.floor(most))
        # A quotient may be off by one: what was divided decides.
        while found and _step_s(lines, found, found * ratio) + stall_s > cap_s:
            found -= 1
        while found < ceiling:
            following = found + 1
            if _step_s(lines, following, following * ratio) + stall_s > cap_s:
                break
            found = following
        return found

    def best_attained(self, cap_s: float, stalls: Sequence[float], ceiling: int) -> int:
        """The number of requests at which the most tokens per second come within `cap_s`; or 0.

        For when no number keeps nearly all of them within it: some stalls are too long whatever
        runs beside them. A request that runs alone meets none, which is worth it where company
        brings little: not where it would cost the replica most of its tokens.
        """
        lines, ratio = self._lines(), self.prefill_tokens_ratio
        alone_s, most = _step_s(lines, 1, 0.0), _step_s(lines, ceiling, ceiling * ratio)
        best, best_rate = 0, 0.0
        if 0.0 < alone_s <= cap_s and most >= _ALONE_RATIO * ceiling * alone_s:
            best, best_rate = 1, len(stalls) / alone_s
        running = 2
        while running <= ceiling:
            step_s = _step_s(lines, running, running * ratio)
            if step_s > cap_s:
                break  # with more of them it takes no less
            within = bisect_right(stalls, cap_s - step_s)
            rate = within * running / step_s if step_s > 0.0 else 0.0
            if rate > best_rate:
                best, best_rate = running, rate
            running = max(running + 1, running * 11 // 10)
        return best

    def prefill_within(self, cap_s: float, running: int) -> float:
        """Prompt tokens of one step that keep it within `cap_s`, beside as many requests."""
        lines = self._lines()
        if not lines:
            return 0.0
        most = math.inf
        for fixed_s, request_s, prefill_s in lines:
            spare_s = cap_s - fixed_s - running * request_s
            if spare_s < _PREFILL_TOKENS_MAX * prefill_s or spare_s < 0.0:
                most = min(most, spare_s / prefill_s if prefill_s > 0.0 else 0.0)
        return max(0.0, most)

    def prefill_for(self, tokens_per_s: float, running: int) -> float:
        """Prompt tokens in flight that sustain this rate of prefill; inf: none does.

        Those in flight are prefilled in one step; the next ones come in during the step that
        follows, which prefills none: p tokens suffice where p >= rate * (step(0) + step(p)).
        """
        lines = self._lines()
        plain_s = _step_s(lines, running, 0.0)
        least = 0.0
        for fixed_s, request_s, prefill_s in lines:
            spare = 1.0 - tokens_per_s * prefill_s
            need = tokens_per_s * (plain_s + fixed_s + running * request_s)
            if need > spare * _PREFILL_TOKENS_MAX:
                return math.inf
            if need > 0.0:
                least = max(least, need / spare)
        return least if lines else math.inf


def _step_s(lines: Sequence[_Line], running: float, prefill_tokens: float) -> float:
    step_s = -math.inf
    for fixed_s, request_s, prefill_s in lines:
        step_s = max(step_s, fixed_s + request_s * running + prefill_s * prefill_tokens)
    return step_s if lines else math.inf


def _stalls(recent: Iterable[_Recent], since_s: float, planes: Sequence[Features]) -> list[float]:
    """What each of their worst gaps has beyond a step; by the fit of now, ascending."""
    found: list[float] = []
    for _, began_s, running, kv_tokens, prefill_tokens, _, itl_p99_s in recent:
        if itl_p99_s is None or began_s < since_s or running < _COMPANY:
            continue
        stall_s = itl_p99_s if planes else 0.0
        for fixed_s, request_s, kv_s, prefill_s in planes:
            step_s = fixed_s + request_s * running + kv_s * kv_tokens + prefill_s * prefill_tokens
            if itl_p99_s - step_s < stall_s:
                stall_s = itl_p99_s - step_s
        found.append(stall_s if stall_s > 0.0 else 0.0)
    found.sort()
    return found
