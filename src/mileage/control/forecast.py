"""Forecast: how long a request will wait in the queue, and for its first token after that."""

from __future__ import annotations

import math

__all__ = ["ServiceForecast", "WaitForecast"]

_FORGET = 0.98
_SAMPLES_MIN = 20
_LEARN_APART_S = 0.005
_RESIDUAL_GAIN = 0.05
_COVARIANCE_MAX = 1e6
_DRAIN_GAIN = 0.2
_BIAS_GAIN = 0.1
_BIAS_MIN, _BIAS_MAX = 0.25, 4.0
_TIME_MAX_S = 3600.0


class ServiceForecast:
    """Seconds from dispatch to the first token: a + b * own prompt + c * prompt tokens ahead
    + d * requests in flight, by recursive least squares with forgetting.

    Its covariance is bounded, so that a long time of equal requests does not make it jump at the
    first that is different. The mean absolute residual is its uncertainty.
    """

    __slots__ = ("_covariance", "_due_s", "_scale", "_theta", "residual_s", "samples")

    def __init__(self) -> None:
        self._theta = [0.0, 0.0, 0.0, 0.0]
        self._scale = (1.0, 1e-3, 1e-3, 1e-1)
        self._covariance = [[100.0 if i == j else 0.0 for j in range(4)] for i in range(4)]
        self._due_s = -math.inf
        self.residual_s = 0.0
        self.samples = 0

    @property
    def known(self) -> bool:
        """It has seen enough to be asked."""
        return self.samples >= _SAMPLES_MIN

    def predict(self, prompt: float, ahead: float, in_flight: float) -> float:
        """The expected time; never negative."""
        x = self._regressors(prompt, ahead, in_flight)
        return max(0.0, sum(a * b for a, b in zip(self._theta, x, strict=True)))

    def learn(
        self, prompt: float, ahead: float, in_flight: float, took_s: float, now_s: float
    ) -> None:
        """A first token came `took_s` after the dispatch. Taken at most every 5 ms."""
        if now_s < self._due_s or not 0.0 <= took_s <= _TIME_MAX_S:
            return
        self._due_s = now_s + _LEARN_APART_S
        x = self._regressors(prompt, ahead, in_flight)
        theta, p = self._theta, self._covariance
        px = [sum(a * b for a, b in zip(row, x, strict=True)) for row in p]
        gain = 1.0 / (_FORGET + sum(a * b for a, b in zip(px, x, strict=True)))
        error_s = took_s - sum(a * b for a, b in zip(theta, x, strict=True))
        for i in range(4):
            theta[i] += gain * px[i] * error_s
        # Forget only while the covariance is small: without news it would grow for ever.
        keep = _FORGET if sum(p[i][i] for i in range(4)) < _COVARIANCE_MAX else 1.0
        for i in range(4):
            row = p[i]
            for j in range(4):
                row[j] = (row[j] - gain * px[i] * px[j]) / keep
        self.samples += 1
        weight = max(_RESIDUAL_GAIN, 1.0 / self.samples)
        self.residual_s += weight * (abs(error_s) - self.residual_s)

    def _regressors(self, prompt: float, ahead: float, in_flight: float) -> tuple[float, ...]:
        one, a, b, c = self._scale
        return (one, a * prompt, b * ahead, c * in_flight)


class WaitForecast:
    """Seconds until a held request is dispatched: the work before it, over the rate at which work
    left the replicas while requests were held; corrected by how such forecasts turned out.
    """

    __slots__ = ("_bias", "_since_s", "_work", "rate")

    def __init__(self) -> None:
        self.rate: float | None = None
        """Work per second while requests were held; None before that was seen."""
        self._bias = 1.0
        self._since_s: float | None = None
        self._work = 0.0

    def backlogged(self, is_held: bool, now_s: float) -> None:
        """Requests are held from now on, or no more."""
        if is_held and self._since_s is None:
            self._since_s, self._work = now_s, 0.0
        elif not is_held and self._since_s is not None:
            self._close(now_s)
            self._since_s = None

    def finished(self, work: float, now_s: float, period_s: float) -> None:
        """A request of that work has left a replica."""
        if self._since_s is None:
            return
        self._work += work
        if now_s - self._since_s >= period_s:
            self._close(now_s)
            self._since_s, self._work = now_s, 0.0

    def _close(self, now_s: float) -> None:
        assert self._since_s is not None
        took_s = now_s - self._since_s
        if took_s <= 0.0 or self._work <= 0.0:
            return
        rate = self._work / took_s
        # A window weighs as much as it is long, whatever number of requests ended in it.
        gain = 1.0 if self.rate is None else 1.0 - math.exp(-took_s * _DRAIN_GAIN)
        self.rate = rate if self.rate is None else self.rate + gain * (rate - self.rate)

    def wait_s(self, work_before: float, rate_assumed: float) -> float:
        """Seconds until `work_before` has left; by `rate_assumed` before a rate was seen."""
        rate = self.rate or rate_assumed
        return self._bias * work_before / rate if rate > 0.0 else 0.0

    def waited(self, forecast_s: float, waited_s: float) -> None:
        """A request that was expected to wait `forecast_s` did wait `waited_s`."""
        if forecast_s <= 0.0:
            return
        ratio = min(_BIAS_MAX, max(_BIAS_MIN, waited_s / forecast_s))
        bias = self._bias * (1.0 + _BIAS_GAIN * (ratio - 1.0))
        self._bias = min(_BIAS_MAX, max(_BIAS_MIN, bias))
