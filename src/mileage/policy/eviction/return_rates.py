"""ReturnRates: after which kind of request another one goes on from it, and how often."""

from __future__ import annotations

from typing import Final

__all__ = ["ReturnRates"]

_SIZES: Final = 12
_DOUBT: Final = 5.0
"""Each kind counts as if it had, before anything was seen, so many requests at the mean rate."""


class ReturnRates:
    """Requests are of a kind: blocks in all, new ones among them (both to powers of two), and
    whether they follow a known prefix that is more than a single block.

    A short turn of a known conversation is followed by another far more often than a long document
    that nobody has seen. Counts fade: at `memory_requests` of a kind they are halved.
    """

    __slots__ = ("_asked", "_asked_all", "_memory", "_returned", "_returned_all")

    def __init__(self, *, memory_requests: int) -> None:
        self._memory = memory_requests
        self._asked = [0.0] * (2 * _SIZES * _SIZES)
        self._returned = [0.0] * (2 * _SIZES * _SIZES)
        self._asked_all = self._returned_all = 0.0

    @staticmethod
    def kind(blocks: int, known: int) -> int:
        """The kind of a request of so many full blocks, the first of them known."""
        size = min(max(blocks, 1).bit_length(), _SIZES) - 1
        new = min((blocks - known + 1).bit_length(), _SIZES) - 1
        return (size * _SIZES + new) * 2 + (known > 1)

    def asked(self, kind: int) -> None:
        """A request of the kind came."""
        self._asked[kind] += 1
        self._asked_all += 1
        if self._asked[kind] > self._memory:
            for counts in (self._asked, self._returned):
                counts[kind] /= 2
            self._asked_all -= self._asked[kind]
            self._returned_all -= self._returned[kind]

    def returned(self, kind: int) -> None:
        """Another one went on from a request of the kind, for the first time."""
        self._returned[kind] += 1
        self._returned_all += 1

    def relative(self, kind: int) -> float:
        """The kind's rate of return over that of all requests; 1 while nothing is known."""
        mean = self.mean()
        return (self._returned[kind] + _DOUBT * mean) / (self._asked[kind] + _DOUBT) / mean

    def mean(self) -> float:
        """The rate of return of all requests; 1 while nothing is known."""
        return (self._returned_all + 1.0) / (self._asked_all + 1.0)
