"""Forecast: how long a request will wait in the queue, and for its first token after that."""

from __future__ import annotations

import math

__all__ = ["ServiceForecast", "Speed", "WaitForecast"]

_FORGET = 0.98
_SAMPLES_MIN = 20
_LEARN_APART_S = 0.005
_RESIDUAL_GAIN = 0.05
_COVARIANCE_MAX = 1e6
_SPEED_SPAN_S = 10.0
_BIAS_GAIN = 0.1
_BIAS_RELAX = 0.02
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


class Speed:
    """Work that one request in flight gets done per second, over the last ten seconds or so.

    Times the limit it is the rate at which a full replica works. Where that has been seen only
    with few in flight it is too high rather than too low: the forecast then lets more in, and the
    speed is seen with more.
    """

    __slots__ = ("_done", "_in_flight_s")

    def __init__(self) -> None:
        self._done = self._in_flight_s = 0.0

    def learn(self, done: float, in_flight_s: float, took_s: float) -> None:
        """In `took_s` so much work was finished, and requests were in flight for so long in sum."""
        keep = math.exp(-max(0.0, took_s) / _SPEED_SPAN_S)
        self._done = keep * self._done + done
        self._in_flight_s = keep * self._in_flight_s + in_flight_s

    @property
    def value(self) -> float | None:
        """None before any work was seen."""
        if self._done <= 0.0 or self._in_flight_s <= 0.0:
            return None
        return self._done / self._in_flight_s


class WaitForecast:
    """Seconds until a held request is dispatched: the work before it over the replicas' rate,
    corrected by how such forecasts turned out lately.
    """

    __slots__ = ("_bias", "residual_s")

    def __init__(self) -> None:
        self._bias = 1.0
        self.residual_s = 0.0
        """By how much such forecasts were wrong lately, on average."""

    def wait_s(self, work_before: float, rate: float) -> float:
        """Seconds until `work_before` is done at `rate`."""
        return self._bias * work_before / rate if rate > 0.0 else 0.0

    def waited(self, forecast_s: float, waited_s: float) -> None:
        """A request that was expected to wait `forecast_s` did wait `waited_s`."""
        if forecast_s <= 0.0:
            return
        self.residual_s += _BIAS_GAIN * (abs(waited_s - forecast_s) - self.residual_s)
        ratio = min(_BIAS_MAX, max(_BIAS_MIN, waited_s / forecast_s))
        bias = self._bias * (1.0 + _BIAS_GAIN * (ratio - 1.0))
        self._bias = min(_BIAS_MAX, max(_BIAS_MIN, bias))

    def relax(self) -> None:
        """Some time has passed: what was learned counts less.

        A correction that lets nothing wait any more would never be found to be wrong.
        """
        self._bias += _BIAS_RELAX * (1.0 - self._bias)
        self.residual_s -= _BIAS_RELAX * self.residual_s
