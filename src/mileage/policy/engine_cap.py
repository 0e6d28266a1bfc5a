"""The cap that an engine gets for a limit that the gateway keeps: never below it."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

from mileage.policy.engine_knobs import ControlDocument

__all__ = ["engine_cap", "running_max"]

_UNEVEN_RATIO: Final = 1 / 8
"""Of its even part, that a data-parallel rank may run more: ranks are not filled evenly."""


def engine_cap(limit: int, document: ControlDocument) -> int | None:
    """`active_max` of each rank, for so many requests of the gateway in all ranks together.

    None: the start value, because the limit is not below it, or the engine has no such knob. It is
    the limit itself, or the next larger CUDA graph: a step of that many requests runs that graph
    anyway, and the engine, which snaps downwards, would else keep some of them waiting.
    """
    most = _slots(document)
    if most is None or document.capabilities.get("active_max") is not True:
        return None
    ranks = max(1, len(document.ranks))
    part = limit if ranks == 1 else math.ceil(limit * (1 + _UNEVEN_RATIO) / ranks)
    sizes = document.graph_sizes
    index = bisect_left(sizes, part)
    cap = sizes[index] if index < len(sizes) else part
    cap = max(cap, document.bounds["active_max"][0])
    return None if cap >= most else cap


def running_max(document: ControlDocument) -> int | None:
    """Requests that all ranks together run at once, as they were started; None: not told."""
    most = _slots(document)
    return None if most is None else most * max(1, len(document.ranks))


def _slots(document: ControlDocument) -> int | None:
    bounds = document.bounds.get("active_max")
    if bounds is None:
        return None
    start = document.start.active_max
    return bounds[1] if start is None else min(start, bounds[1])
