"""Shares: how limits that are meant for all workers together are divided between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

__all__ = ["Shares"]

_EQUAL_RATIO = 0.3
"""Of every limit this part is divided equally, so that a worker that was idle can begin at once."""
_GAIN = 0.5
_TOLD_RATIO = 0.1
"""A share is told anew when it is off by more than this part of itself."""

W = TypeVar("W")


class Shares(Generic[W]):
    """Gives each worker a share by the requests that it has, smoothed. All shares sum to 1.

    Connections spread unevenly over the workers of a port (the kernel hashes them), and equal
    shares would leave a part of every limit unused.
    """

    def __init__(self) -> None:
        self._demands: dict[W, float] = {}
        self._told: dict[W, float] = {}

    def update(self, requests: Mapping[W, int]) -> dict[W, float]:
        """Take in how many requests each worker that lives has; the shares that are to be told.

        Those of all are told when one of them is new, gone or far off: they belong together.
        """
        before = self._demands
        self._demands = {
            worker: before.get(worker, float(count)) * (1.0 - _GAIN) + _GAIN * count
            for worker, count in requests.items()
        }
        shares = self._shares()
        told = self._told
        same = told.keys() == shares.keys() and all(
            abs(share - told[worker]) <= _TOLD_RATIO * told[worker]
            for worker, share in shares.items()
        )
        if same:
            return {}
        self._told = shares
        return shares

    def _shares(self) -> dict[W, float]:
        demands = self._demands
        if not demands:
            return {}
        equal, total = 1.0 / len(demands), sum(demands.values())
        if total <= 0.0:
            return dict.fromkeys(demands, equal)
        return {
            worker: _EQUAL_RATIO * equal + (1.0 - _EQUAL_RATIO) * demand / total
            for worker, demand in demands.items()
        }
