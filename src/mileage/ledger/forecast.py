"""Forecast: what a month will come to, from the hours so far, with an interval."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from mileage.ledger.billing_config import ForecastConfig
from mileage.ledger.calendar import HOUR_S, hour_of_week
from mileage.measure.distributions import t_critical

__all__ = ["Forecast", "forecast"]

_WEEK_H: Final = 168
_DAY_H: Final = 24
_HALF_LIFE_H: Final = 14 * _DAY_H
"""An hour two weeks ago counts half as much as one of now."""
_CORRELATION_MAX: Final = 0.8
_WHOLE_DAY_H: Final = 20
"""Hours of a day that must be on record for the day to tell how far days are off."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of a time, of which a part is over. In the unit of the values given.

    `actual` is of hours so far; `expected` is of the whole time, and `low` to `high` holds it as
    often as the configuration says.
    """

    actual: float
    expected: float
    low: float
    high: float
    by: Literal["hour of the week", "hour of the day"]
    """What the hours to come are taken to be like."""
    history_days: float
    """Days on record that it learned from."""


def forecast(
    hours_at_utc_s: Sequence[int],
    values: Sequence[float],
    zone: dt.tzinfo,
    config: ForecastConfig,
    *,
    start_utc_s: int,
    now_utc_s: int,
    end_utc_s: int,
) -> Forecast | None:
    """The sum from `start_utc_s` to `end_utc_s`; None where too few days are on record.

    `values` are those of the hours that are on record, in order; what began before `now_utc_s`
    only. The hour of now is not over: it is scaled up, and counts as little as it is long.

    An hour to come is taken to be the weighted mean of the same hour of the week, where two weeks
    are on record, else of the same hour of the day; weights halve every two weeks. How far off that
    is follows from the days on record: their distances from the means, with what neighbouring days
    and whole weeks have in common, by Student's t; the mean itself is as uncertain as its number of
    days allows.
    """
    length_h = (now_utc_s % HOUR_S) / HOUR_S
    now_hour = now_utc_s - now_utc_s % HOUR_S
    earliest = now_hour - config.history_days * _DAY_H * HOUR_S
    past = [
        (at, value)
        for at, value in zip(hours_at_utc_s, values, strict=True)
        if earliest <= at < now_hour
    ]
    days = len(past) / _DAY_H
    if days < config.history_days_min:
        return None
    actual = math.fsum(
        value
        for at, value in zip(hours_at_utc_s, values, strict=True)
        if start_utc_s <= at <= now_hour
    )
    weekly = days >= 2 * _WEEK_H / _DAY_H
    means = _Means(past, zone, now_hour, weekly=weekly)
    coming = range(now_hour + HOUR_S, end_utc_s, HOUR_S)
    rest = math.fsum(means.at(at) for at in coming) + (1.0 - length_h) * means.at(now_hour)
    expected = actual + rest
    half = means.sigma(past, len(coming) / _DAY_H + (1.0 - length_h) / _DAY_H)
    half *= t_critical(1.0 - config.level_ratio, means.freedom)
    return Forecast(
        actual=actual,
        expected=expected,
        low=max(actual, expected - half),
        high=expected + half,
        by="hour of the week" if weekly else "hour of the day",
        history_days=days,
    )


class _Means:
    """Weighted means of hours that are alike."""

    def __init__(
        self, past: Sequence[tuple[int, float]], zone: dt.tzinfo, now_hour: int, *, weekly: bool
    ) -> None:
        self._zone, self._weekly = zone, weekly
        self._day = [[0.0, 0.0] for _ in range(_DAY_H)]
        self._week = [[0.0, 0.0] for _ in range(_WEEK_H)]
        for at, value in past:
            weight = 0.5 ** ((now_hour - at) / HOUR_S / _HALF_LIFE_H)
            hour = hour_of_week(at, zone)
            for sums in (self._week[hour], self._day[hour % _DAY_H]):
                sums[0] += weight
                sums[1] += weight * value
        weights = [0.5 ** ((now_hour - at) / HOUR_S / _HALF_LIFE_H) for at, _ in past]
        self._days = math.fsum(weights) ** 2 / math.fsum(w * w for w in weights) / _DAY_H
        """Days that as many equal weights would be of."""
        self._all = math.fsum(value for _, value in past) / len(past)

    @property
    def freedom(self) -> float:
        """Days beyond those that the means used up: degrees of freedom of Student's t."""
        return max(1.0, self._days - (7.0 if self._weekly else 1.0))

    def at(self, at_utc_s: int) -> float:
        """The mean of hours like that one: of its day where its week has none, else of all."""
        hour = hour_of_week(at_utc_s, self._zone)
        for weight, total in (*([self._week[hour]] if self._weekly else []), self._day[hour % 24]):
            if weight > 0.0:
                return total / weight
        return self._all

    def sigma(self, past: Sequence[tuple[int, float]], days_ahead: float) -> float:
        """Standard deviation of what is to come in so many days about the means."""
        by_day: dict[int, list[float]] = {}
        for at, value in past:
            by_day.setdefault(at // (_DAY_H * HOUR_S), []).append(value - self.at(at))
        off = {
            day: math.fsum(each) * _DAY_H / len(each)
            for day, each in by_day.items()
            if len(each) >= _WHOLE_DAY_H
        }
        if len(off) < 2:
            return 0.0
        per_mean = 7.0 if self._weekly else 1.0
        # Means were made of the same days: a part of how they vary is in the means.
        left = max(0.2, 1.0 - per_mean / self._days)
        variance = math.fsum(value * value for value in off.values()) / len(off) / left
        together = self._together(off, variance * left, per_mean)
        return math.sqrt(variance * together * days_ahead * (1.0 + days_ahead / self._days))

    @staticmethod
    def _together(off: dict[int, float], variance: float, per_mean: float) -> float:
        """How much more a sum of days varies than that of independent ones: by what neighbours have
        in common, (1 + r) / (1 - r) for a first-order process, and by whole weeks."""
        if variance <= 0.0:
            return 1.0
        pairs = [value * off[day + 1] for day, value in off.items() if day + 1 in off]
        together = 1.0
        if pairs:
            # Distances from means of the same days are correlated less than days are.
            r = math.fsum(pairs) / len(pairs) / variance + per_mean / len(off)
            r = min(_CORRELATION_MAX, max(0.0, r))
            together = (1.0 + r) / (1.0 - r)
        weeks: dict[int, list[float]] = {}
        for day, value in off.items():
            weeks.setdefault((day - max(off)) // 7, []).append(value)
        sums = [math.fsum(each) for each in weeks.values() if len(each) == 7]
        if len(sums) >= 4:
            of_weeks = math.fsum(value * value for value in sums) / len(sums) / (7.0 * variance)
            together = max(together, of_weeks)
        return together
