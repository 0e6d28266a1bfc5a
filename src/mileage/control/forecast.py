"""Forecast: how long a request will wait in the queue, and for its first token after that."""

from __future__ import annotations

import math
from typing import TypeAlias

__all__ = [
    "LEARN_APART_S",
    "SAMPLES_MIN",
    "TIME_MAX_S",
    "ServiceForecast",
    "Speed",
    "WaitForecast",
    "learned",
    "predicted_s",
    "residual_of",
    "tokens_within",
]

_FORGET = 0.98
SAMPLES_MIN = 20
LEARN_APART_S = 0.005
_RESIDUAL_GAIN = 0.05
_COVARIANCE_MAX = 1e6
_SPEED_SPAN_S = 10.0
_BIAS_GAIN = 0.1
_BIAS_RELAX = 0.02
_BIAS_MIN, _BIAS_MAX = 0.25, 4.0
TIME_MAX_S = 3600.0
_SCALE_MIN_S = 0.02
_ERROR_MAX = 2.0
_Vector: TypeAlias = tuple[float, float, float, float]
_Matrix: TypeAlias = tuple[_Vector, _Vector, _Vector, _Vector]


class ServiceForecast:
    """Seconds from dispatch to the first token: a + b * own prompt + c * prompt tokens ahead
    + d * requests in flight, by recursive least squares with forgetting.

    Its covariance is bounded, so that a long time of equal requests does not make it jump at the
    first that is different. Errors count relative to what was expected: else the longest prompts
    would decide alone what is said of the short ones. Their mean is its uncertainty.
    """

    __slots__ = ("_covariance", "_theta", "due_s", "residual_ratio", "samples")

    def __init__(self) -> None:
        self._theta: _Vector = (0.0, 0.0, 0.0, 0.0)
        self._covariance: _Matrix = (
            (100.0, 0.0, 0.0, 0.0),
            (0.0, 100.0, 0.0, 0.0),
            (0.0, 0.0, 100.0, 0.0),
            (0.0, 0.0, 0.0, 100.0),
        )
        self.due_s = -math.inf
        """When it takes a sample again."""
        self.residual_ratio = 0.0
        """By how much of what was expected the latest ones were off, on average."""
        self.samples = 0

    @property
    def known(self) -> bool:
        """It has seen enough to be asked."""
        return self.samples >= SAMPLES_MIN

    def predict(self, prompt: float, ahead: float, in_flight: float) -> float:
        """The expected time; never negative."""
        return predicted_s(self._theta, prompt, ahead, in_flight)

    def tokens_within(self, time_s: float, in_flight: float) -> float:
        """Prompt tokens, ahead and own, of which the first token is sure to come within `time_s`;
        inf while nothing is known, or they cost nothing."""
        if not self.known:
            return math.inf
        return tokens_within(self._theta, time_s / (1.0 + self.residual_ratio), in_flight)

    def learn(
        self, prompt: float, ahead: float, in_flight: float, took_s: float, now_s: float
    ) -> None:
        """A first token came `took_s` after the dispatch. Taken at most every 5 ms."""
        if now_s < self.due_s or not 0.0 <= took_s <= TIME_MAX_S:
            return
        self.due_s = now_s + LEARN_APART_S
        self._theta, self._covariance, error = learned(
            self._theta, self._covariance, self.known, prompt, ahead, in_flight, took_s
        )
        self.samples += 1
        self.residual_ratio = residual_of(self.residual_ratio, error, self.samples)


def predicted_s(theta: _Vector, prompt: float, ahead: float, in_flight: float) -> float:
    """What these coefficients expect; never negative."""
    return max(0.0, _dot(theta, _regressors(prompt, ahead, in_flight)))


def tokens_within(theta: _Vector, time_s: float, in_flight: float) -> float:
    """Prompt tokens that they expect to take `time_s`; inf where these cost nothing."""
    constant, own, ahead, each = theta
    token_s = 1e-3 * max(own, ahead)
    if token_s <= 0.0:
        return math.inf
    return (time_s - constant - 1e-1 * each * in_flight) / token_s


def learned(
    theta: _Vector,
    p: _Matrix,
    known: bool,
    prompt: float,
    ahead: float,
    in_flight: float,
    took_s: float,
) -> tuple[_Vector, _Matrix, float]:
    """One step of least squares: coefficients and covariance from then on, and the error, of what
    was expected (where anything was `known`)."""
    plain = _regressors(prompt, ahead, in_flight)
    expected_s = _dot(theta, plain) if known else took_s
    scale_s = max(_SCALE_MIN_S, expected_s, 0.1 * took_s)
    x0, x1, x2, x3 = plain
    x = x0 / scale_s, x1 / scale_s, x2 / scale_s, x3 / scale_s
    q = _dot(p[0], x), _dot(p[1], x), _dot(p[2], x), _dot(p[3], x)
    gain = 1.0 / (_FORGET + _dot(q, x))
    error = took_s / scale_s - _dot(theta, x)
    t0, t1, t2, t3 = theta
    g0, g1, g2, g3 = gain * q[0], gain * q[1], gain * q[2], gain * q[3]
    theta = (t0 + g0 * error, t1 + g1 * error, t2 + g2 * error, t3 + g3 * error)
    # Forget only while the covariance is small: without news it would grow for ever.
    trace = p[0][0] + p[1][1] + p[2][2] + p[3][3]
    keep = _FORGET if trace < _COVARIANCE_MAX else 1.0
    a, b = _row(p[0], g0, q, keep), _row(p[1], g1, q, keep)
    c, d = _row(p[2], g2, q, keep), _row(p[3], g3, q, keep)
    # One half is mirrored: a difference between the two, of rounding alone, would never be learned
    # away, and with all that is forgotten it would grow until nothing that is expected makes sense.
    rows = (a, (a[1], b[1], b[2], b[3]), (a[2], b[2], c[2], c[3]), (a[3], b[3], c[3], d[3]))
    return theta, rows, error


def _row(row: _Vector, g: float, q: _Vector, keep: float) -> _Vector:
    a, b, c, d = row
    return (
        (a - g * q[0]) / keep,
        (b - g * q[1]) / keep,
        (c - g * q[2]) / keep,
        (d - g * q[3]) / keep,
    )


def residual_of(residual_ratio: float, error: float, samples: int) -> float:
    """The mean error with the one of the latest of so many samples."""
    weight = max(_RESIDUAL_GAIN, 1.0 / samples)
    return residual_ratio + weight * (min(abs(error), _ERROR_MAX) - residual_ratio)


def _regressors(prompt: float, ahead: float, in_flight: float) -> _Vector:
    """Of about the same size, all."""
    return 1.0, 1e-3 * prompt, 1e-3 * ahead, 1e-1 * in_flight


def _dot(a: _Vector, b: _Vector) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]


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
