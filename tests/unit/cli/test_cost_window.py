"""The window of a bill goes by the minutes that the ledger has."""

from __future__ import annotations

import datetime as dt

import pytest

from mileage.cli.cost_window import window_of

NOW_S = 1_796_033_645


@pytest.mark.parametrize(
    ("since", "until"),
    [
        pytest.param("2026-11-30T10:03:59Z", "2026-11-30T10:07:39.5Z", id="seconds"),
        pytest.param("2026-11-30T10:03Z", "2026-11-30T10:07Z", id="minutes"),
    ],
)
def test_moments_are_whole_minutes(since: str, until: str) -> None:
    window = window_of(since, until, dt.UTC, "UTC", NOW_S)
    assert (window.since_utc_s, window.until_utc_s) == (1_796_033_040 - 60, 1_796_033_220)


def test_without_an_end_it_is_up_to_this_second() -> None:
    assert window_of("1h", None, dt.UTC, "UTC", NOW_S).until_utc_s == NOW_S
