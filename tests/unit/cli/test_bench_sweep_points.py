"""Points of a sweep: loads times values, and how lists of them are spelled."""

from __future__ import annotations

import pytest

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_sweep_arguments import SweepArguments
from mileage.cli.bench_sweep_points import SweepPoint, groups_of, load_of, points_of
from mileage.core.errors import ConfigError


def spelled(
    concurrency: str | None = None,
    rate: str | None = None,
    rate_scale: str | None = None,
    values: tuple[str, ...] = (),
) -> list[str]:
    found = points_of(concurrency=concurrency, rate=rate, rate_scale=rate_scale, values=values)
    return [point.label for point in found]


@pytest.mark.parametrize(
    ("found", "labels"),
    [
        pytest.param(spelled("1, 2"), ["1 client", "2 clients"], id="clients"),
        pytest.param(spelled(rate="0.5,2"), ["0.5/s", "2/s"], id="rates"),
        pytest.param(spelled(rate_scale="1,3"), ["x 1", "x 3"], id="a trace's own rate, times"),
        pytest.param(spelled(values=("a", "b")), ["a", "b"], id="values alone"),
        pytest.param(
            spelled("1,2", values=("a", "b")),
            ["a, 1 client", "a, 2 clients", "b, 1 client", "b, 2 clients"],
            id="each value with each load",
        ),
    ],
)
def test_points(found: list[str], labels: list[str]) -> None:
    assert found == labels


@pytest.mark.parametrize(
    ("concurrency", "rate", "key"),
    [
        pytest.param("4", None, "--concurrency", id="one point has no front"),
        pytest.param("1,x", None, "--concurrency", id="no number"),
        pytest.param("1,2.5", None, "--concurrency", id="half a client"),
        pytest.param("0,1", None, "--concurrency", id="nobody"),
        pytest.param("2,2", None, "--concurrency", id="twice the same"),
        pytest.param(None, "1,-2", "--rate", id="less than nothing"),
        pytest.param(None, "nan,2", "--rate", id="not a number"),
        pytest.param(None, "1,inf", "--rate", id="without end"),
        pytest.param("1,2", "1,2", "--rate", id="two axes"),
    ],
)
def test_lists_that_are_none(concurrency: str | None, rate: str | None, key: str) -> None:
    with pytest.raises(ConfigError) as told:
        spelled(concurrency, rate)
    assert told.value.key == key


def test_too_many_points_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 200"):
        spelled(",".join(map(str, range(1, 300))))


def test_points_of_one_value_stand_together() -> None:
    points = [SweepPoint(value=v, rate=r) for r in (1.0, 2.0) for v in ("a", "b")]
    assert groups_of(points) == [[0, 2], [1, 3]]


def test_a_run_has_the_options_of_its_sweep_but_for_its_load() -> None:
    arguments = SweepArguments(concurrency="1,2", model="m", prompt_tokens="7")
    found = load_of(arguments, concurrency=2, rate=None, rate_scale=1.0)
    assert found == LoadArguments(concurrency=2, model="m", prompt_tokens="7")
