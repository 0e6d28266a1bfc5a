"""Names, amounts and windows of budget accounts."""

from __future__ import annotations

import datetime as dt

import pytest

from mileage.control.accounts import (
    account_name,
    amount_text,
    budget_amount,
    duration_text,
    split_account,
    window_at,
)
from mileage.policy.tenants import BudgetConfig, BudgetPeriod, BudgetUnit


def utc_s(text: str) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("period", "at", "starts", "ends"),
    [
        pytest.param("hour", "2026-03-01T10:59:59", "2026-03-01T10:00", "2026-03-01T11:00"),
        pytest.param("day", "2026-03-01T00:00:00", "2026-03-01T00:00", "2026-03-02T00:00"),
        pytest.param("month", "2028-02-29T23:59:59", "2028-02-01T00:00", "2028-03-01T00:00"),
        pytest.param("month", "2026-12-31T12:00:00", "2026-12-01T00:00", "2027-01-01T00:00"),
    ],
)
def test_windows_are_calendar_periods_in_utc(
    period: BudgetPeriod, at: str, starts: str, ends: str
) -> None:
    window = window_at(period, utc_s(at))
    assert (window.starts_utc_s, window.ends_utc_s) == (utc_s(starts), utc_s(ends))
    assert window_at(period, window.ends_utc_s).number == window.number + 1
    assert window_at(period, window.ends_utc_s - 1).number == window.number


@pytest.mark.parametrize("period", ["hour", "day", "month"])
@pytest.mark.parametrize("moment", [-1e18, -0.5, 1e18, float("inf")])
def test_a_clock_out_of_its_mind_still_has_a_window(period: BudgetPeriod, moment: float) -> None:
    window = window_at(period, moment)
    assert window.starts_utc_s < window.ends_utc_s


@pytest.mark.parametrize(
    ("amount", "unit", "whole"),
    [
        pytest.param(1000.9, "tokens", 1000, id="tokens are rounded down"),
        pytest.param(0.5, "usd", 500_000_000, id="nano-USD"),
        pytest.param(2, "gpu_s", 2_000_000_000, id="GPU-nanoseconds"),
        pytest.param(1e-12, "usd", 1, id="at least one"),
    ],
)
def test_amounts_are_whole(amount: float, unit: BudgetUnit, whole: int) -> None:
    assert budget_amount(BudgetConfig(amount=amount, unit=unit, per="day")) == whole


def test_names_lead_back_to_tenant_unit_and_period() -> None:
    budget = BudgetConfig(amount=1, unit="gpu_s", per="month")
    assert account_name("a/b", budget) == "a/b/gpu_s/month"
    assert split_account("a/b/gpu_s/month") == ("a/b", "gpu_s", "month")


@pytest.mark.parametrize(
    ("unit", "amount", "text"),
    [
        ("tokens", 1200, "1200 tokens"),
        ("usd", 2_100_000, "0.0021 USD"),
        ("gpu_s", 500_000_000, "0.5 GPU-seconds"),
    ],
)
def test_amounts_for_people(unit: BudgetUnit, amount: int, text: str) -> None:
    assert amount_text(unit, amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1 s"), (119.2, "120 s"), (121, "3 min"), (7200, "2 h"), (172_801, "3 days")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
