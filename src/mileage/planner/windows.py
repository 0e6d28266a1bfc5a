"""Windows: the parts of a trace that a search looks at before it looks at all of it."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from mileage.core.bounds import require_at_least
from mileage.planner.traffic import Traffic
from mileage.policy.load import PREFILL_COST_BUSY

__all__ = ["Rung", "rungs"]

_REQUESTS_MIN: Final = 300
"""Of a window: fewer say little of a quantile."""
_WINDOWS_MAX: Final = 4


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """The requests from `start` to before `stop`."""

    start: int
    stop: int
    share_ratio: float
    """Of all requests; 1: it is the whole trace."""

    @property
    def whole(self) -> bool:
        """Whether it is all of the trace."""
        return self.share_ratio >= 1.0


def rungs(traffic: Traffic, *, shrink: int = 4) -> tuple[Rung, ...]:
    """Ever longer windows of time, and the whole trace at the end; each `shrink` times as long as
    the one before, and the busiest of its length.

    Busy is what brings the most work, as the router counts it. What cannot cope with such a window
    on its own, from an empty start, does not cope with it in the whole trace either: see
    `search.hopeless`. A trace that is short, or comes all at once, is one window.
    """
    require_at_least("shrink", shrink, 2)
    count, span_s = len(traffic), traffic.span_s
    found = [Rung(start=0, stop=count, share_ratio=1.0)]
    length_s = span_s / shrink
    while span_s > 0.0 and len(found) < _WINDOWS_MAX:
        start, stop = _busiest(traffic, length_s)
        if stop - start < _REQUESTS_MIN or stop - start == count:
            break
        found.append(Rung(start=start, stop=stop, share_ratio=(stop - start) / count))
        length_s /= shrink
    return tuple(reversed(found))


def _busiest(traffic: Traffic, length_s: float) -> tuple[int, int]:
    """The window of that length, from some arrival on, that brings the most work; of equals the
    first."""
    columns = traffic.columns
    arrived_s, count = columns.arrived_s, len(traffic)
    before = np.zeros(count + 1)
    before[1:] = np.cumsum(1.0 + PREFILL_COST_BUSY * columns.prompt_tokens + columns.output_tokens)
    stops = np.searchsorted(arrived_s, arrived_s + length_s, side="right")
    start = int(np.argmax(before[stops] - before[:count]))
    return start, int(stops[start])
