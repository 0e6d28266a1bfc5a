"""Bounds of configuration values: what is refused, and what the refusal says."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from mileage.core.bounds import require_at_least, require_positive, require_range, require_up_to
from mileage.core.errors import ConfigError


@pytest.mark.parametrize(
    ("check", "taken", "refused", "expected"),
    [
        pytest.param(
            lambda v: require_range("k", v, 1, 9, note=", or none"),
            (1, 5, 9),
            (0, 10, math.nan),
            "1..9, or none",
            id="range",
        ),
        pytest.param(
            lambda v: require_positive("k", v),
            (1e-9, 5),
            (0, -1, math.inf, math.nan),
            "a positive number of seconds",
            id="positive",
        ),
        pytest.param(
            lambda v: require_at_least("k", v, 1),
            (1, 1e9),
            (0.9, -math.inf, math.inf, math.nan),
            "at least 1",
            id="at least",
        ),
        pytest.param(
            lambda v: require_up_to("k", v, 2.5),
            (1e-9, 2.5),
            (0, 2.6, math.nan),
            "above 0, up to 2.5",
            id="up to",
        ),
    ],
)
def test_bounds(
    check: Callable[[float], None],
    taken: tuple[float, ...],
    refused: tuple[float, ...],
    expected: str,
) -> None:
    for value in taken:
        check(value)
    for value in refused:
        with pytest.raises(ConfigError) as caught:
            check(value)
        assert (caught.value.key, caught.value.expected) == ("k", expected)


def test_a_bound_that_is_not_finite_bounds_nothing() -> None:
    with pytest.raises(ConfigError):
        require_up_to("k", 1.0, math.inf)
