"""decompose(): trend, season and residual add up, and are learnt from the past alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mileage.doctor.rca.anomalies import anomalies_of, scored
from mileage.doctor.rca.decompose import DAY_S, decompose
from mileage.doctor.rca.series import Floats, History, Series

STEP_S = 300.0
PERIOD = round(DAY_S / STEP_S)


def daily(days: float, *, amplitude: float = 0.5, noise: float = 0.05, shift: int = 0) -> Floats:
    """A load of 10 with the course of a day."""
    at = np.arange(round(days * PERIOD)) + shift
    wave = 1.0 + amplitude * np.sin(2 * math.pi * at / PERIOD)
    return 10.0 * wave + np.random.default_rng(7).normal(0, noise * 10, len(at))


@pytest.fixture(params=[pytest.param(True, id="STL"), pytest.param(False, id="medians")])
def stl(request: pytest.FixtureRequest) -> bool:
    """Both ways; the first where statsmodels is installed."""
    if request.param:
        pytest.importorskip("statsmodels")
    return bool(request.param)


def test_parts_add_up_to_the_values(stl: bool) -> None:
    values = daily(4)
    parts = decompose(values, step_s=STEP_S, first=3 * PERIOD, stl=stl)
    assert parts is not None
    assert parts.expected + parts.residual == pytest.approx(values)
    assert parts.method == ("stl" if stl else "medians")


@pytest.mark.parametrize("shift", [0, 100])
def test_the_course_of_a_day_is_found(stl: bool, shift: int) -> None:
    values = daily(4.4, shift=shift)
    parts = decompose(values, step_s=STEP_S, first=round(3.4 * PERIOD), stl=stl)
    assert parts is not None
    wave = 5.0 * np.sin(2 * math.pi * (np.arange(len(values)) + shift) / PERIOD)
    assert np.abs(parts.seasonal - wave).max() < 1.5
    assert np.std(parts.residual) < 0.9  # of a standard deviation of 3.5 with the wave


def test_the_course_of_a_day_is_no_anomaly(stl: bool) -> None:
    series = Series(node="gateway", name="requests_per_s", values=tuple(daily(5)))
    history = History(start_utc_s=0.0, step_s=STEP_S, since_utc_s=4 * DAY_S, series=(series,))
    found = scored(series, history, stl=stl)
    assert found is not None
    assert anomalies_of(found, history.first) == []


def test_a_change_on_top_of_the_course_of_a_day_is_one(stl: bool) -> None:
    values = daily(5)
    values[-60:] *= 1.8
    series = Series(node="gateway", name="requests_per_s", values=tuple(values))
    history = History(start_utc_s=0.0, step_s=STEP_S, since_utc_s=4 * DAY_S, series=(series,))
    found = scored(series, history, stl=stl)
    assert found is not None
    first = anomalies_of(found, history.first)[0]
    assert first.direction == "up"
    assert first.start == pytest.approx(len(values) - 60, abs=3)
    assert first.size_ratio == pytest.approx(1.8, rel=0.15)


def test_what_is_searched_teaches_nothing(stl: bool) -> None:
    calm, wild = daily(4), daily(4)
    wild[3 * PERIOD :] *= 3
    both = [decompose(v, step_s=STEP_S, first=3 * PERIOD, stl=stl) for v in (calm, wild)]
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].seasonal == pytest.approx(both[1].seasonal)


def test_without_two_days_there_is_no_season() -> None:
    parts = decompose(daily(1.5), step_s=STEP_S, first=PERIOD)
    assert parts is not None
    assert parts.method == "level"
    assert not parts.seasonal.any()


def test_without_a_past_the_beginning_is_what_is_usual() -> None:
    parts = decompose(np.full(100, 3.0), step_s=60.0, first=0)
    assert parts is not None
    assert parts.reference == 40


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.full(500, math.nan), id="no number at all"),
        pytest.param(np.full(30, 1.0), id="too short"),
        pytest.param(np.array([]), id="empty"),
    ],
)
def test_too_little_is_not_decomposed(values: Floats) -> None:
    assert decompose(values, step_s=60.0, first=0) is None


def test_gaps_stay_gaps_and_hide_no_season(stl: bool) -> None:
    values = daily(4)
    values[100:130] = math.nan
    values[PERIOD + 40 :: 97] = math.nan
    parts = decompose(values, step_s=STEP_S, first=3 * PERIOD, stl=stl)
    assert parts is not None
    assert (np.isnan(parts.residual) == np.isnan(values)).all()
    assert np.isfinite(parts.expected).all()
