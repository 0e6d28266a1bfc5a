"""anomalies_of(): what counts as unusual, from when on, and in which direction."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from mileage.doctor.rca.anomalies import Anomaly, anomalies_of, scored
from mileage.doctor.rca.joint import joint_anomalies
from mileage.doctor.rca.series import History, Series


def found(
    values: Sequence[float | None], *, name: str = "ttft_p50_s", first: int = 100
) -> list[Anomaly]:
    """The anomalies of one series."""
    series = Series(node="gateway", name=name, values=tuple(values))
    history = History(start_utc_s=0.0, step_s=60.0, since_utc_s=first * 60.0, series=(series,))
    each = scored(series, history, stl=False)
    return [] if each is None else anomalies_of(each, history.first)


def noise(count: int, level: float = 0.2, spread: float = 0.1, seed: int = 3) -> list[float | None]:
    """Lognormal noise."""
    random_ = random.Random(seed)
    return [level * math.exp(random_.gauss(0, spread)) for _ in range(count)]


def changed(factor: float, start: int, end: int, count: int = 300) -> list[float | None]:
    """Noise that is `factor` times as high for a while."""
    values = noise(count)
    return [v * factor if start <= at < end and v is not None else v for at, v in enumerate(values)]


@pytest.mark.parametrize(
    ("factor", "direction"),
    [pytest.param(2.0, "up", id="up"), pytest.param(0.5, "down", id="down")],
)
def test_a_step_is_found_with_its_time_size_and_direction(factor: float, direction: str) -> None:
    (each,) = found(changed(factor, 200, 240))
    assert each.direction == direction
    assert each.start == pytest.approx(200, abs=1)
    assert each.end == pytest.approx(240, abs=2)
    assert each.size_ratio == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(noise(300), id="noise"),
        pytest.param([1.0] * 300, id="a constant"),
        pytest.param([0.0] * 300, id="nothing at all"),
        pytest.param(changed(5.0, 200, 202), id="two points"),
        pytest.param([1.0] * 200 + [1.05] * 100, id="a twentieth, however sure"),
        pytest.param(changed(2.0, 20, 60), id="a change before what is searched"),
    ],
)
def test_what_is_no_anomaly(values: list[float | None]) -> None:
    assert found(values) == []


def test_failures_where_there_were_none_are_an_anomaly() -> None:
    (each,) = found([0.0] * 200 + [0.2] * 20 + [0.0] * 80, name="failed_ratio")
    assert (each.start, each.end, each.size_ratio) == (200, 220, None)


@pytest.mark.parametrize(
    "hole",
    [
        pytest.param(None, id="gap"),
        pytest.param(math.nan, id="NaN"),
        pytest.param(math.inf, id="inf"),
    ],
)
def test_values_that_are_no_numbers_are_gaps(hole: float | None) -> None:
    values = changed(2.0, 200, 240)
    values[210] = values[50] = values[211] = hole
    (each,) = found(values)
    assert each.start == pytest.approx(200, abs=1)
    assert math.isfinite(each.score)


def test_several_series_that_are_a_little_off_are_unusual_together() -> None:
    pytest.importorskip("sklearn")
    names = ["requests_per_s", "ttft_p50_s", "decode_tokens_per_s", "prompt_tokens_mean", "waiting"]
    rows = []
    for seed, name in enumerate(names):
        values = noise(400, level=10.0, seed=seed)
        off = [v * 1.25 if at >= 300 and v is not None else v for at, v in enumerate(values)]
        rows.append(Series(node="gateway", name=name, values=tuple(off)))
    history = History(start_utc_s=0.0, step_s=60.0, since_utc_s=200 * 60.0, series=tuple(rows))
    looked = [scored(each, history, stl=False) for each in rows]
    together = joint_anomalies([e for e in looked if e is not None], history.first, seed=0)
    assert together
    assert all(each.start >= 298 and len(each.joint) == 3 for each in together)


def test_fewer_than_three_series_are_not_looked_at_together() -> None:
    assert joint_anomalies([], 0, seed=0) == []
