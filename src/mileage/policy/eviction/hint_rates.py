"""HintRates: what callers' hints that a request will be followed have turned out to be worth."""

from __future__ import annotations

from typing import Final

__all__ = ["HintRates"]

_LEVELS: Final = 10
_TRUST: Final = 10.0
"""A hint counts as if it had been right so many times before anything was seen."""
_RATE_MIN: Final = 0.005


class HintRates:
    """Keeps, for hints of each tenth of probability, how many of their requests were followed.

    A hint is thus taken for what it has turned out to say, and not for what it claims: one that
    tells nothing comes to change nothing, and one that is always wrong is as good as its opposite.
    Counts fade: at `memory_hints` of a tenth they are halved, so hints that go wrong are noticed.
    """

    __slots__ = ("_asked", "_memory", "_returned")

    def __init__(self, *, memory_hints: int) -> None:
        self._memory = memory_hints
        self._asked = [0.0] * _LEVELS
        self._returned = [0.0] * _LEVELS

    @staticmethod
    def level(returns_ratio: float) -> int:
        """The tenth that a hint is in."""
        return min(max(int(returns_ratio * _LEVELS), 0), _LEVELS - 1)

    def asked(self, level: int) -> None:
        """A request came with a hint of this tenth."""
        self._asked[level] += 1
        if self._asked[level] > self._memory:
            self._asked[level] /= 2
            self._returned[level] /= 2

    def returned(self, level: int) -> None:
        """Another one went on from such a request, for the first time."""
        self._returned[level] += 1

    def rate(self, returns_ratio: float) -> float:
        """The share of requests with such a hint that are followed."""
        level = self.level(returns_ratio)
        return (self._returned[level] + _TRUST * returns_ratio) / (self._asked[level] + _TRUST)

    def relative(self, returns_ratio: float, *, kind_rate: float, mean_rate: float) -> float:
        """The chance of a request with this hint over that of its kind without one.

        Bayes' rule: odds(kind) x odds(hint) / odds(mean), the hint being independent of the kind
        among those that are followed, and among those that are not.
        """
        kind = _bounded(kind_rate)
        odds = _odds(kind) * _odds(_bounded(self.rate(returns_ratio))) / _odds(_bounded(mean_rate))
        return odds / (1 + odds) / kind


def _bounded(rate: float) -> float:
    return min(max(rate, _RATE_MIN), 1 - _RATE_MIN)


def _odds(rate: float) -> float:
    return rate / (1 - rate)
