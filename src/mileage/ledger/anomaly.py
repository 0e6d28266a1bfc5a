"""Anomalies: hours in which an account used far more or less than at that hour of the week."""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from mileage.ledger.billing_config import AnomalyConfig
from mileage.ledger.calendar import hour_of_week
from mileage.ledger.hour_series import HourSeries

__all__ = ["Anomalies", "Anomaly", "find_anomalies"]

Against = Literal["hour of the week", "hour of the day"]

_PER_SIGMA: Final = 1.4826
"""Median absolute deviation -> standard deviation, of a normal distribution."""
_WEEKS_MIN: Final = 3
_DAYS_MIN: Final = 7
_RATIO_FLOOR: Final = 0.1
"""Hours that were alike to less than this part of themselves by chance are not taken to stay so."""
_TYPICAL_HOURS: Final = 500
_DAY_S: Final = 86_400
_NS: Final = 1e9


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One hour of one account. `expected_ns` is the median of the hours that it was compared with;
    `deviations` is how many robust standard deviations the hour is away from it, and below it where
    that is negative."""

    account: str
    hour_at_utc_s: int
    expected_ns: float
    actual_ns: int
    deviations: float
    extra_nano_usd: float | None
    """What it cost more than expected, at the account's price of that hour."""
    against: Against
    samples: int


class Anomalies(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; `hours` were looked at, of `unknown` hours there was too little to compare
    with."""

    found: tuple[Anomaly, ...]
    hours: int
    unknown: int


def find_anomalies(
    series: HourSeries, config: AnomalyConfig, zone: dt.tzinfo, *, since_utc_s: int
) -> Anomalies:
    """Anomalies of the hours from `since_utc_s` on, each against hours before it.

    An hour is compared with the same hour of the week, where there are three weeks of it, else with
    the same hour of the day, where there are seven days. The standard deviation is the larger of
    that of these hours and of the account's typical one, and at least a tenth of the median: three
    weeks that happened to be alike make no alarm. Median and median absolute deviation (Hampel's
    identifier) are not moved by the anomalies that the history has itself.
    """
    by_week: dict[int, list[tuple[int, int]]] = {}
    by_day: dict[int, list[tuple[int, int]]] = {}
    found: list[Anomaly] = []
    looked = unknown = 0
    typical: list[float] = []
    for place, (at, actual) in enumerate(zip(series.hours_at_utc_s, series.gpu_ns, strict=True)):
        week = hour_of_week(at, zone)
        earliest = at - config.history_days * _DAY_S
        of_week = _since(by_week.setdefault(week, []), earliest)
        of_day = _since(by_day.setdefault(week % 24, []), earliest)
        past = of_week if len(of_week) >= _WEEKS_MIN else of_day
        enough = len(of_week) >= _WEEKS_MIN or len(of_day) >= _DAYS_MIN
        if enough:
            expected = statistics.median(past)
            if at >= since_utc_s:
                sigma = _sigma(past, expected, typical)
                deviations = (actual - expected) / sigma
                if _stands_out(config, actual, expected, deviations):
                    against: Against = "hour of the week" if past is of_week else "hour of the day"
                    anomaly = _anomaly(series, place, expected, deviations, against, len(past))
                    found.append(anomaly)
            typical.append(abs(actual - expected))
        if at >= since_utc_s:
            looked += 1
            unknown += not enough
        by_week[week].append((at, actual))
        by_day[week % 24].append((at, actual))
    return Anomalies(found=tuple(found), hours=looked, unknown=unknown)


def _sigma(past: Sequence[int], expected: float, typical: Sequence[float]) -> float:
    return max(
        _PER_SIGMA * statistics.median(abs(value - expected) for value in past),
        _PER_SIGMA * statistics.median(typical[-_TYPICAL_HOURS:]) if typical else 0.0,
        _RATIO_FLOOR * expected,
        1.0,
    )


def _anomaly(
    series: HourSeries,
    place: int,
    expected: float,
    deviations: float,
    against: Against,
    samples: int,
) -> Anomaly:
    actual, money = series.gpu_ns[place], series.nano_usd
    price = None if money is None or not actual else money[place] / actual
    return Anomaly(
        account=series.name,
        hour_at_utc_s=series.hours_at_utc_s[place],
        expected_ns=expected,
        actual_ns=actual,
        deviations=deviations,
        extra_nano_usd=None if price is None else price * (actual - expected),
        against=against,
        samples=samples,
    )


def _since(samples: Sequence[tuple[int, int]], earliest: int) -> list[int]:
    return [value for at, value in samples if at >= earliest]


def _stands_out(config: AnomalyConfig, actual: float, expected: float, deviations: float) -> bool:
    change = abs(actual - expected)
    return (
        abs(deviations) >= config.deviations
        and change >= config.change_ratio_min * expected
        and change >= config.gpu_s_min * _NS
    )
