"""GradientStep: a limit by feedback alone, for engines whose step time does not follow its load."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mileage.policy.limits.limit import RequestSample
from mileage.policy.limits.readings import positive

__all__ = ["GradientStep"]

_COMPANY_RATIO = 1.1
_GAIN = 0.2
_SAMPLES_MIN = 5
_CUT_MIN = 0.5
_TOLERANCE = 1.5
_BEST_DRIFT = 1.0005


class GradientStep:
    """Cut the limit by as much as latency is too high, else let it grow by its square root.

    With a cap, what is compared with it is the worst gap (p99) of each request, or its mean step
    where gaps are not known. Without one it is engine time per token, step / requests running,
    against the best seen: where more requests yield no more tokens but fewer, the engine thrashes.
    The best drifts upward slowly, so that what once was is not asked for for ever. Requests that
    ran in more company than the limit allows now do not count. (The idea: Netflix's
    concurrency-limits, Gradient2, which compares with a long-term mean of latency itself; here
    latency grows with the load of a healthy engine too, and would always look too high.)
    """

    __slots__ = ("_best_s", "_gap_s", "_gaps", "_share_s", "_shares")

    def __init__(self) -> None:
        self._best_s: float | None = None
        self._gap_s = self._share_s = 0.0
        self._gaps = self._shares = 0

    def learn(self, samples: Sequence[RequestSample], limit: int) -> None:
        """Take in requests that ended under `limit`."""
        for sample in samples:
            running, step_s = positive(sample.running_mean), positive(sample.step_s)
            if running is None or running > _COMPANY_RATIO * limit + 1.0:
                continue
            gap_s = positive(sample.itl_p99_s) or step_s
            if gap_s is not None:
                self._gaps += 1
                self._gap_s += max(_GAIN, 1.0 / self._gaps) * (gap_s - self._gap_s)
            if step_s is not None and running >= limit / 2:
                self._shares += 1
                gain = max(_GAIN, 1.0 / self._shares)
                self._share_s += gain * (step_s / running - self._share_s)
        if self._shares >= _SAMPLES_MIN:
            best_s = math.inf if self._best_s is None else self._best_s * _BEST_DRIFT
            self._best_s = min(best_s, self._share_s)

    def next(self, limit: int, *, reached: bool, cap_s: float | None) -> tuple[float, str]:
        """The limit to go to, and why. After a change requests are gathered anew."""
        if cap_s is not None:
            enough, value_s, most_s = self._gaps >= _SAMPLES_MIN, self._gap_s, cap_s
            what = "p99 gap"
        else:
            enough, value_s = self._shares >= _SAMPLES_MIN, self._share_s
            most_s = _TOLERANCE * (self._best_s or math.inf)
            what = "engine time per token"
        if not enough:
            return limit, "too few requests at this limit"
        seen = f"{what} {value_s * 1e3:.3g} ms"
        if value_s > most_s:
            self._begin()
            wanted = math.floor(limit * max(_CUT_MIN, most_s / value_s))
            return max(1, wanted), f"{seen} above {most_s * 1e3:.3g} ms"
        if reached:
            self._begin()
            return limit + math.sqrt(limit), f"{seen} within {most_s * 1e3:.3g} ms"
        return limit, f"{seen} within {most_s * 1e3:.3g} ms"

    def _begin(self) -> None:
        self._gap_s = self._share_s = 0.0
        self._gaps = self._shares = 0
