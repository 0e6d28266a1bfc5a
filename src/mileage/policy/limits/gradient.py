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


class GradientStep:
    """Cut the limit by as much as latency is too high, else let it grow by its square root.

    What is compared with the cap is the worst gap (p99) of each request, or its mean step where
    gaps are not known. Requests that ran in more company than the limit allows now do not count.
    (The idea: Netflix's concurrency-limits, Gradient2, which compares latency with its own
    long-term mean; a healthy engine's grows with its load, and would always look too high.)
    """

    __slots__ = ("_gap_s", "_gaps")

    def __init__(self) -> None:
        self._gap_s = 0.0
        self._gaps = 0

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

    def next(self, limit: int, *, reached: bool, cap_s: float) -> tuple[float, str]:
        """The limit to go to, and why. After a change requests are gathered anew."""
        if self._gaps < _SAMPLES_MIN:
            return limit, "too few requests at this limit"
        value_s = self._gap_s
        seen = f"p99 gap {value_s * 1e3:.3g} ms"
        if value_s > cap_s:
            self._begin()
            wanted = math.floor(limit * max(_CUT_MIN, cap_s / value_s))
            return max(1, wanted), f"{seen} above {cap_s * 1e3:.3g} ms"
        if reached:
            self._begin()
            return limit + math.sqrt(limit), f"{seen} within {cap_s * 1e3:.3g} ms"
        return limit, f"{seen} within {cap_s * 1e3:.3g} ms"

    def _begin(self) -> None:
        self._gap_s = 0.0
        self._gaps = 0
