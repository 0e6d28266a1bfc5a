"""PrefillCost: what a prompt token takes of an engine, in output tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from mileage.policy.limits.limit import RequestSample

__all__ = ["PrefillCost", "blended"]

_LEARN_MAX = 64
_MEMORY_SAMPLES = 2000.0
_KEEP = 1.0 - 1.0 / _MEMORY_SAMPLES
_GOOD_SAMPLES = 64
_FIRST_RATIO = 4.0
_NEIGHBOURS = 3
_SHARED_MIN_RATIO = 0.03
_RIDGE_RATIO = 0.01
_COLLINEAR_MAX = 0.9
_SHARE_MAX = 0.98
_COST_MIN, _COST_MAX = 0.005, 2.0
_BLEND_GAIN = 0.1


def blended(cost: float, fitted: float, fits: int) -> float:
    """The cost that replicas share, after one more was fitted; `fits` before it were taken in.

    The mean of the first ones, so that what was assumed before counts no more once one is known;
    then each moves it by a tenth.
    """
    return cost + max(_BLEND_GAIN, 1.0 / (fits + 1)) * (fitted - cost)


class PrefillCost:
    """The share of an engine's time that prompts take, per prompt token, over the share that is
    left for answers, per output token.

    That share is what a prompt token adds to a step, times their number, over the time that the
    engine worked: of each request's time one part by those that decoded with it. A request's first
    token comes out of its prefill; it belongs to the prompt.

    The requests that ended teach it, whatever they were: the first 64 between two decisions, and
    none of those that were sent at once to an engine that stood idle, for they waited for prompts
    that were counted before their own.
    """

    __slots__ = ("_first", "_slope", "_totals")

    def __init__(self) -> None:
        self._slope = _PrefillSlope()
        self._totals = (0.0, 0.0, 0.0, 0.0)
        """Of the time of the engine, prompt tokens, output tokens, and requests."""
        self._first = 0

    def learn(self, samples: Iterable[RequestSample]) -> None:
        """Take in requests that have ended."""
        for sample in islice(samples, _LEARN_MAX):
            step_s, decoding = sample.step_s, sample.decoding_mean
            if step_s is None:
                continue
            if self._first < _FIRST_RATIO * sample.running_mean:
                self._first += 1
                continue
            steps = max(1.0, float(sample.output_tokens - sample.stream))
            self._slope.learn(steps, decoding, sample.prefill_tokens_per_step, step_s)
            time_s, prompt_tokens, output_tokens, requests = self._totals
            self._totals = (
                _KEEP * time_s + steps * step_s / max(1.0, decoding),
                _KEEP * prompt_tokens + sample.prefill_tokens,
                _KEEP * output_tokens + sample.output_tokens,
                _KEEP * requests + 1.0,
            )

    @property
    def value(self) -> float | None:
        """Output tokens that a prompt token is worth; None while that does not show."""
        time_s, prompt_tokens, output_tokens, requests = self._totals
        prefill_s = self._slope.value
        if prefill_s is None or not prompt_tokens > 0.0:
            return None
        share = min(_SHARE_MAX, prefill_s * prompt_tokens / time_s)
        cost = (share * output_tokens / (1.0 - share) + requests) / prompt_tokens
        return min(_COST_MAX, max(_COST_MIN, cost))


class _PrefillSlope:
    """Seconds that a prompt token adds to a step: the slope of a plane over (decoding, prefilled).

    The tokens of context are no axis of it: prompts bring them, so at a steady load the two rise
    and fall together, and a part of what prompts take would be given to their context. What long
    contexts take is charged to the prompts that they come from.

    A prompt counts whole in the moment of its first token, so the tokens prefilled per step of one
    request are off by what was half done at its beginning and its end. By least squares that makes
    the slope too flat, by as much as a tenth at a steady load. So each request is compared with
    those that ended just before it, which saw much of the same steps but began and ended at
    another moment: covariances between two of them are free of the errors of either (an
    instrumental variable: Wald, "The Fitting of Straight Lines if Both Variables are Subject to
    Error", 1940; Fuller, "Measurement Error Models", 1987). A pair counts by the product of its
    steps, for the error falls with their number.
    """

    __slots__ = ("_latest", "_seen", "_sums")

    def __init__(self) -> None:
        self._latest: deque[tuple[float, float, float, float]] = deque(maxlen=_NEIGHBOURS)
        self._sums = [0.0] * 10
        """Over pairs: weight, means of decoding, prefilled and step time; products across them of
        decoding with itself, prefilled with decoding and with itself, step time with decoding and
        with prefilled; and the square of prefilled within."""
        self._seen = 0

    def learn(self, steps: float, decoding: float, prefilled: float, step_s: float) -> None:
        """Take in one request: how many steps it made, and the means over them."""
        total = [_KEEP * each for each in self._sums]
        d, p, y = decoding, prefilled, step_s
        for steps_before, d0, p0, y0 in self._latest:
            weight = steps * steps_before
            half = 0.5 * weight
            total[0] += weight
            total[1] += half * (d0 + d)
            total[2] += half * (p0 + p)
            total[3] += half * (y0 + y)
            total[4] += weight * d0 * d
            total[5] += half * (d0 * p + d * p0)
            total[6] += weight * p0 * p
            total[7] += half * (d0 * y + d * y0)
            total[8] += half * (p0 * y + p * y0)
            total[9] += half * (p0 * p0 + p * p)
        self._sums = total
        self._latest.append((steps, d, p, y))
        self._seen += 1

    @property
    def value(self) -> float | None:
        """None while too little was seen, what requests saw has nothing in common, or prompts and
        decodes only rise and fall together."""
        weight, *sums = self._sums
        if self._seen < _GOOD_SAMPLES or weight <= 0.0:
            return None
        d, p, y, dd, dp, pp, dy, py, own_pp = (each / weight for each in sums)
        # Where about as many decode all the time, their number explains nothing.
        dd += (_RIDGE_RATIO * d) ** 2 - d * d
        dp, pp, dy, py, own_pp = dp - d * p, pp - p * p, dy - d * y, py - p * y, own_pp - p * p
        if not (pp > 0.0 and pp > _SHARED_MIN_RATIO * own_pp):
            return None
        rest = dd * pp - dp * dp
        if rest < (1.0 - _COLLINEAR_MAX) * dd * pp:
            return None
        decoding_s = max(0.0, (dy * pp - py * dp) / rest)
        slope = (py - decoding_s * dp) / pp
        return slope if slope > 0.0 else None
