"""A number that may be known only within bounds."""

from __future__ import annotations

from math import inf, isinf

import msgspec

__all__ = ["ANY", "Interval", "exactly"]


class Interval(msgspec.Struct, frozen=True):
    """All values from `low` to `high`, both included. An exact value has both alike.

    Comparisons answer True or False where it is so for every value, and None where it depends.
    """

    low: float = -inf
    high: float = inf

    def above(self, limit: float) -> bool | None:
        """Is it more than `limit`?"""
        return _decided(self.low > limit, self.high <= limit)

    def at_least(self, limit: float) -> bool | None:
        """Is it `limit` or more?"""
        return _decided(self.low >= limit, self.high < limit)

    def below(self, limit: float) -> bool | None:
        """Is it less than `limit`?"""
        return _decided(self.high < limit, self.low >= limit)

    def at_most(self, limit: float) -> bool | None:
        """Is it `limit` or less?"""
        return _decided(self.high <= limit, self.low > limit)

    def exceeds(self, other: Interval) -> bool | None:
        """Is it more than `other`, whatever both are?"""
        return _decided(self.low > other.high, self.high <= other.low)

    @property
    def exact(self) -> bool:
        """Is it one value?"""
        return self.low == self.high

    @property
    def bounded(self) -> bool:
        """Are both ends known?"""
        return not isinf(self.low) and not isinf(self.high)

    @property
    def middle(self) -> float:
        """The middle, or the end that is known; 0 where none is."""
        if self.bounded:
            return (self.low + self.high) / 2
        return next((end for end in (self.low, self.high) if not isinf(end)), 0.0)

    def plus(self, other: Interval) -> Interval:
        """The sum."""
        return Interval(self.low + other.low, self.high + other.high)

    def minus(self, other: Interval) -> Interval:
        """The difference."""
        return Interval(self.low - other.high, self.high - other.low)

    def times(self, other: Interval) -> Interval:
        """The product of two values that are not negative."""
        return Interval(_product(self.low, other.low), _product(self.high, other.high))

    def over(self, other: Interval) -> Interval:
        """The quotient of two values that are not negative."""
        return Interval(_quotient(self.low, other.high), _quotient(self.high, other.low))

    def clipped(self, low: float, high: float) -> Interval:
        """Its ends moved into `low`..`high`."""
        return Interval(min(max(self.low, low), high), min(max(self.high, low), high))

    def hull(self, other: Interval) -> Interval:
        """The least interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def plain(self) -> float | dict[str, float]:
        """As it stands in a facts document: a number, or its bounds."""
        if self.exact:
            return self.low
        ends = {"min": self.low, "max": self.high}
        return {name: end for name, end in ends.items() if not isinf(end)}

    def shown(self) -> str:
        """For people: `0.9`, `at least 1`, `0.2 to 0.4`."""
        if self.exact:
            return f"{self.low:.4g}"
        if self.bounded:
            return f"{self.low:.4g} to {self.high:.4g}"
        if isinf(self.low) and isinf(self.high):
            return "unknown"
        return f"at most {self.high:.4g}" if isinf(self.low) else f"at least {self.low:.4g}"


ANY = Interval()
"""Nothing is known."""


def exactly(value: float) -> Interval:
    """One value."""
    return Interval(value, value)


def _decided(yes: bool, no: bool) -> bool | None:
    if yes:
        return True
    return False if no else None


def _product(one: float, other: float) -> float:
    one, other = max(one, 0.0), max(other, 0.0)
    return 0.0 if one == 0 or other == 0 else one * other


def _quotient(above: float, below: float) -> float:
    above, below = max(above, 0.0), max(below, 0.0)
    if isinf(below):
        return 0.0
    return inf if below == 0 else above / below
