"""Roi: when a candidate pays back what it takes to change to it, and what that hangs on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError

__all__ = ["Business", "Roi", "Sensitivity", "Serving", "roi"]

_USD_MAX: Final = 1e12
_REQUESTS_MAX: Final = 1e15
_GROWTH: Final = (-0.5, 1.0)
_MONTHS_MAX: Final = 600
"""What pays back later than in 50 years does not."""
_SWING: Final = 0.2


class Serving(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests are served: today's way, or the one that is thought of."""

    name: str
    usd_per_request: float
    """Of serving alone."""
    usd_per_month: float = 0.0
    """What is paid whatever is asked: reserved cards, licences, people."""
    accuracy_ratio: float | None = None
    """Answers that are right, of those that users get."""
    review_ratio: float = 0.0
    """Answers that a person looks at, of all."""

    def __post_init__(self) -> None:
        require_range("*.usd_per_request", self.usd_per_request, 0.0, _USD_MAX)
        require_range("*.usd_per_month", self.usd_per_month, 0.0, _USD_MAX)
        require_range("*.review_ratio", self.review_ratio, 0.0, 1.0)
        if self.accuracy_ratio is not None:
            require_range("*.accuracy_ratio", self.accuracy_ratio, 0.0, 1.0)


class Business(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is the same for both."""

    requests_per_month: float
    """In the first month."""
    review_usd: float = 0.0
    """What a look of a person at one answer costs."""
    error_usd: float = 0.0
    """What a wrong answer costs that reached its user."""
    one_time_usd: float = 0.0
    """What the change costs, once."""
    growth_ratio_per_month: float = 0.0
    """Of the requests: 0.05 is 5 % more every month than in the one before."""

    def __post_init__(self) -> None:
        require_range("business.requests_per_month", self.requests_per_month, 0.0, _REQUESTS_MAX)
        for key in ("review_usd", "error_usd", "one_time_usd"):
            require_range(f"business.{key}", getattr(self, key), 0.0, _USD_MAX)
        growth = self.growth_ratio_per_month
        require_range("business.growth_ratio_per_month", growth, *_GROWTH)


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of it when one input is a fifth less, or more."""

    input: str
    low: float
    high: float
    saving_usd_per_month: tuple[float, float]
    """At the low and the high value; of the first month."""
    break_even_months: tuple[float | None, float | None]

    @property
    def swing_usd(self) -> float:
        """How far apart the two savings are."""
        return abs(self.saving_usd_per_month[1] - self.saving_usd_per_month[0])


class Roi(msgspec.Struct, frozen=True, kw_only=True):
    """The candidate against the baseline. Months are from the start on."""

    baseline_usd_per_request: float
    """All of it: serving, people who look at answers, wrong ones. Without what a month costs."""
    candidate_usd_per_request: float
    baseline_usd_per_month: float
    candidate_usd_per_month: float
    saving_usd_per_month: float
    """In the first month; below 0 the candidate costs more."""
    saving_usd_first_year: float
    """What the change costs is taken off."""
    return_ratio_first_year: float | None
    """The first year's saving by what the change costs; None where that is nothing."""
    break_even_months: float | None
    """None: never, or not within 50 years."""
    break_even_date: dt.date | None
    """None too where it is so far off that no calendar has it."""
    sensitivity: tuple[Sensitivity, ...]
    """What it hangs on most comes first."""


def roi(baseline: Serving, candidate: Serving, business: Business, start: dt.date) -> Roi:
    """Work it out: a request costs its serving, `review_ratio` looks at `review_usd` each, and
    `1 - accuracy_ratio` errors at `error_usd` each. The saving of month m (from 0 on) is of
    `requests_per_month * (1 + growth)**m` requests.

    ConfigError where wrong answers cost something and an accuracy is not known.
    """
    case = _Case(baseline, candidate, business)
    months = case.break_even_months()
    first_year = sum(case.saving_usd(month) for month in range(12)) - business.one_time_usd
    costs = business.one_time_usd
    return Roi(
        baseline_usd_per_request=case.usd_per_request(baseline),
        candidate_usd_per_request=case.usd_per_request(candidate),
        baseline_usd_per_month=case.usd_per_month(baseline, 0),
        candidate_usd_per_month=case.usd_per_month(candidate, 0),
        saving_usd_per_month=case.saving_usd(0),
        saving_usd_first_year=first_year,
        return_ratio_first_year=first_year / costs if costs else None,
        break_even_months=months,
        break_even_date=None if months is None else _after(start, months),
        sensitivity=tuple(
            sorted(_sensitivities(case), key=lambda each: (-each.swing_usd, each.input))
        ),
    )


class _Case:
    """Both ways and what they have in common; one of them changed is another case."""

    def __init__(self, baseline: Serving, candidate: Serving, business: Business) -> None:
        self.baseline, self.candidate, self.business = baseline, candidate, business

    def usd_per_request(self, serving: Serving) -> float:
        business = self.business
        usd = serving.usd_per_request + serving.review_ratio * business.review_usd
        if not business.error_usd:
            return usd
        if serving.accuracy_ratio is None:
            expected = "known, as wrong answers cost something (error_usd)"
            raise ConfigError(f"{serving.name}.accuracy_ratio", None, expected)
        return usd + (1.0 - serving.accuracy_ratio) * business.error_usd

    def usd_per_month(self, serving: Serving, month: int) -> float:
        requests = self.business.requests_per_month
        requests *= (1.0 + self.business.growth_ratio_per_month) ** month
        return serving.usd_per_month + requests * self.usd_per_request(serving)

    def saving_usd(self, month: int) -> float:
        return self.usd_per_month(self.baseline, month) - self.usd_per_month(self.candidate, month)

    def break_even_months(self) -> float | None:
        """When the savings are what the change costs; within a month they come evenly."""
        left = self.business.one_time_usd
        if left <= 0.0:
            return 0.0 if self.saving_usd(0) >= 0.0 else None
        for month in range(_MONTHS_MAX):
            saving = self.saving_usd(month)
            if saving >= left:
                return month + left / saving
            left -= saving
        return None


def _sensitivities(case: _Case) -> Iterator[Sensitivity]:
    for name, value, changed in _inputs(case):
        low, high = value * (1.0 - _SWING), value * (1.0 + _SWING)
        if name.endswith("_ratio"):
            high = min(1.0, high)
        cases = (changed(low), changed(high))
        yield Sensitivity(
            input=name,
            low=low,
            high=high,
            saving_usd_per_month=(cases[0].saving_usd(0), cases[1].saving_usd(0)),
            break_even_months=(cases[0].break_even_months(), cases[1].break_even_months()),
        )


def _inputs(case: _Case) -> Iterator[tuple[str, float, Callable[[float], _Case]]]:
    """Everything that is a number and not 0, by the name of its field, and the case with another
    value of it."""
    business, parts = case.business, (case.baseline, case.candidate)
    for field in ("requests_per_month", "review_usd", "error_usd", "one_time_usd"):
        if value := getattr(business, field):

            def of_business(value: float, field: str = field) -> _Case:
                return _Case(*parts, msgspec.structs.replace(business, **{field: value}))

            yield field, value, of_business
    for number, serving in enumerate(parts):
        role = ("baseline", "candidate")[number]
        for field in ("usd_per_request", "usd_per_month", "accuracy_ratio", "review_ratio"):
            if value := getattr(serving, field):

                def of_serving(value: float, number: int = number, field: str = field) -> _Case:
                    changed = msgspec.structs.replace(parts[number], **{field: value})
                    if number:
                        return _Case(parts[0], changed, business)
                    return _Case(changed, parts[1], business)

                yield f"{role}.{field}", value, of_serving


def _after(start: dt.date, months: float) -> dt.date | None:
    """So many months later; a part of a month is that part of its days. None from the
    last year that dates have."""
    whole = int(months)
    at = start.year * 12 + start.month - 1 + whole
    if at // 12 >= dt.MAXYEAR:
        return None
    first, following = (dt.date(n // 12, n % 12 + 1, 1) for n in (at, at + 1))
    days = (following - first).days
    day = first.replace(day=min(start.day, days))
    return day + dt.timedelta(days=round((months - whole) * days))
