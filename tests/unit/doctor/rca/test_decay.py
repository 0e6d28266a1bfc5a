"""relations(): throughput that wears down, and honest answers where it does not."""

from __future__ import annotations

import random

import pytest

from mileage.doctor.rca.decay import Relation, relations
from mileage.doctor.rca.series import History, Series

POINTS = 400


def _walk(random_: random.Random, size: float) -> list[float]:
    value, values = 0.0, []
    for _ in range(POINTS):
        value = 0.9 * value + random_.gauss(0, size)
        values.append(value)
    return values


def relation(speed: list[float | None], driver: list[float | None], name: str) -> Relation:
    """The relation of a replica's decode speed to a driver."""
    rows = (
        Series(node="replica:a", name="decode_tokens_per_s", values=tuple(speed)),
        Series(node="replica:a", name=name, values=tuple(driver)),
    )
    (found,) = relations(History(start_utc_s=0.0, step_s=60.0, series=rows))
    return found


@pytest.mark.parametrize("lag", [0, 5])
def test_decay_with_growing_fragmentation_is_found(lag: int) -> None:
    random_ = random.Random(1)
    growth = [0.001 * at + wave for at, wave in enumerate(_walk(random_, 0.02))]
    speed: list[float | None] = [
        50.0 - 40.0 * growth[max(0, at - lag)] + random_.gauss(0, 0.5) for at in range(POINTS)
    ]
    found = relation(speed, list(growth), "kv_fragmentation_ratio")
    assert found.found == "related"
    assert found.lag_s == pytest.approx(60.0 * lag, abs=60.0)
    assert found.slope_low is not None
    assert found.slope_high is not None
    assert found.slope_low <= -40.0 <= found.slope_high
    assert found.lost_ratio == pytest.approx(0.36, abs=0.12)


def test_two_trends_alone_are_said_to_be_no_proof() -> None:
    random_ = random.Random(2)
    speed: list[float | None] = [50 - 0.03 * at + random_.gauss(0, 0.5) for at in range(POINTS)]
    rss: list[float | None] = [1e9 + 1e6 * at + random_.gauss(0, 1e7) for at in range(POINTS)]
    assert relation(speed, rss, "rss_bytes").found == "common_trend"


def test_without_a_relation_none_is_seen_in_198_of_200() -> None:
    seen = 0
    for seed in range(200):
        random_ = random.Random(seed)
        speed: list[float | None] = [50.0 + wave for wave in _walk(random_, 0.5)]
        switches: list[float | None] = [1e3 + wave for wave in _walk(random_, 50.0)]
        seen += relation(speed, switches, "context_switches_per_s").found == "related"
    assert seen <= 2


def test_more_of_the_driver_and_more_throughput_is_no_decay() -> None:
    random_ = random.Random(3)
    rss: list[float | None] = [1e9 + 1e7 * wave for wave in _walk(random_, 1.0)]
    speed: list[float | None] = [50.0 + (v or 0.0) * 1e-9 * 40 for v in rss]
    assert relation(speed, rss, "rss_bytes").found == "none"


def test_a_constant_driver_or_too_few_points_say_too_little() -> None:
    speed: list[float | None] = [50.0] * POINTS
    assert relation(speed, [0.1] * POINTS, "preemptions_per_s").found == "too_little"
    few: list[float | None] = [*([None] * (POINTS - 20)), *[float(at) for at in range(20)]]
    assert relation(few, few, "rss_bytes").found == "too_little"
