"""Which models make room."""

from __future__ import annotations

import pytest

from mileage.policy.residency.room import Resident, make_room


def resident(name: str, size: int = 100, idle_s: float = 60.0, **fields: float | None) -> Resident:
    values = {"load_cost_s": 100.0, "return_s": None, **fields}
    return Resident(name=name, memory_bytes=size, idle_s=idle_s, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("residents", "missing", "going"),
    [
        pytest.param([resident("a")], 0, (), id="nothing is missing"),
        pytest.param([], 1, None, id="nobody can go"),
        pytest.param([resident("a")], 101, None, id="all are not enough"),
        pytest.param(
            [resident("a", idle_s=10.0), resident("b", idle_s=900.0)],
            100,
            ("b",),
            id="longest idle",
        ),
        pytest.param(
            [resident("a", idle_s=900.0, return_s=5.0), resident("b", return_s=3600.0)],
            100,
            ("b",),
            id="one that is soon wanted stays",
        ),
        pytest.param(
            [resident("a", load_cost_s=1000.0), resident("b")],
            100,
            ("b",),
            id="quickly loaded again",
        ),
        pytest.param([resident("a"), resident("b", 1000)], 900, ("b",), id="not more than needed"),
    ],
)
def test_who_makes_room(
    residents: list[Resident], missing: int, going: tuple[str, ...] | None
) -> None:
    assert make_room(residents, missing) == going
