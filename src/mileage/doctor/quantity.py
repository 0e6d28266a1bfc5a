"""A numeric fact as a rule sees it: one value, one for each unit, or a series over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from mileage.doctor.check import Check
from mileage.doctor.interval import ANY, Interval

__all__ = ["Quantity", "absent"]

Shape = Literal["absent", "one", "units", "series"]


class Quantity(msgspec.Struct, frozen=True):
    """`parts` hold one interval, one for each unit (GPU, replica, process), or one for each time.

    The checks `above`, `at_least`, ... look at the mean of the parts; `most` and `least` name the
    largest and smallest of them. An absent quantity answers every check with "not known".
    """

    key: str
    unit: str = ""
    shape: Shape = "absent"
    parts: tuple[Interval, ...] = ()
    times_s: tuple[float | None, ...] = ()
    unset: bool = False
    """The setting is known to be not set, so that its default applies."""

    @property
    def known(self) -> bool:
        """Is there a value?"""
        return bool(self.parts)

    @property
    def value(self) -> Interval:
        """The value, or the mean over units or times; `ANY` where it is not known."""
        if not self.parts:
            return ANY
        count = len(self.parts)
        return Interval(
            sum(part.low for part in self.parts) / count,
            sum(part.high for part in self.parts) / count,
        )

    @property
    def most(self) -> Interval:
        """The largest of the parts; `ANY` where it is not known."""
        if not self.parts:
            return ANY
        return Interval(max(p.low for p in self.parts), max(p.high for p in self.parts))

    @property
    def least(self) -> Interval:
        """The smallest of the parts; `ANY` where it is not known."""
        if not self.parts:
            return ANY
        return Interval(min(p.low for p in self.parts), min(p.high for p in self.parts))

    @property
    def total(self) -> Interval:
        """The sum over units; of a series its mean."""
        return self.value if self.shape == "series" else self._summed()

    @property
    def units(self) -> tuple[Interval, ...]:
        """One value for each unit; empty unless it is a list."""
        return self.parts if self.shape == "units" else ()

    @property
    def series(self) -> tuple[Interval, ...]:
        """One value for each time, in order; empty unless it is a series."""
        return self.parts if self.shape == "series" else ()

    def above(self, limit: float) -> Check:
        """Is the mean more than `limit`?"""
        return self._check(f"> {limit:g}", self.value.above(limit))

    def at_least(self, limit: float) -> Check:
        """Is the mean `limit` or more?"""
        return self._check(f">= {limit:g}", self.value.at_least(limit))

    def below(self, limit: float) -> Check:
        """Is the mean less than `limit`?"""
        return self._check(f"< {limit:g}", self.value.below(limit))

    def at_most(self, limit: float) -> Check:
        """Is the mean `limit` or less?"""
        return self._check(f"<= {limit:g}", self.value.at_most(limit))

    def any_above(self, limit: float) -> Check:
        """Is it more than `limit` in one of the units or times?"""
        return self._check(f"any > {limit:g}", self.most.above(limit))

    def any_below(self, limit: float) -> Check:
        """Is it less than `limit` in one of the units or times?"""
        return self._check(f"any < {limit:g}", self.least.below(limit))

    def all_above(self, limit: float) -> Check:
        """Is it more than `limit` in every unit or time?"""
        return self._check(f"all > {limit:g}", self.least.above(limit))

    def all_below(self, limit: float) -> Check:
        """Is it less than `limit` in every unit or time?"""
        return self._check(f"all < {limit:g}", self.most.below(limit))

    def exceeds(self, other: Quantity, factor: float = 1.0) -> Check:
        """Is the mean more than `factor` times that of `other`?"""
        truth = self.value.exceeds(other.value.times(Interval(factor, factor)))
        times = "" if factor == 1.0 else f"{factor:g} x "
        known = truth if self.known and other.known else None
        return self._check(f"> {times}{other.key} ({other.value.shown()})", known)

    def where(self, limit: str, decide: Callable[[Interval], bool | None]) -> Check:
        """A check of one's own on the mean: `limit` says it in words."""
        return self._check(limit, decide(self.value) if self.known else None)

    def is_unset(self) -> Check:
        """Is the setting known to be not set? False where it has a value."""
        return self._check("not set", True if self.unset else (False if self.known else None))

    def plain(self) -> Any:
        """As it stands in a facts document; None where it is absent or not set."""
        if not self.parts:
            return None
        values = [part.plain() for part in self.parts]
        if self.shape == "one":
            return values[0]
        if self.shape == "units":
            return values
        times = self.times_s or (None,) * len(values)
        return {
            "series": [
                {"value": value} if time_s is None else {"t_s": time_s, "value": value}
                for time_s, value in zip(times, values, strict=True)
            ]
        }

    def _summed(self) -> Interval:
        if not self.parts:
            return ANY
        return Interval(sum(p.low for p in self.parts), sum(p.high for p in self.parts))

    def _check(self, limit: str, truth: bool | None) -> Check:
        if not self.known and not self.unset:
            truth = None
        return Check(self.key, self.plain(), limit, truth)


def absent(key: str) -> Quantity:
    """A quantity of which nothing is known."""
    return Quantity(key)
