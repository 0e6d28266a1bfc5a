"""Quantities, durations and times as Kubernetes writes them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.doctor.collect.k8s_quantity import duration_s, quantity, time_s


@pytest.mark.parametrize(
    ("written", "value"),
    [
        pytest.param("500m", 0.5, id="thousandths"),
        pytest.param("100m", 0.1, id="a tenth to the last bit"),
        pytest.param("2", 2, id="a whole number"),
        pytest.param(2, 2, id="an int of YAML"),
        pytest.param(0.5, 0.5, id="a float of YAML"),
        pytest.param("1Gi", 2**30, id="binary"),
        pytest.param("1.5Gi", 3 * 2**29, id="a fraction of a binary"),
        pytest.param("1G", 10**9, id="decimal"),
        pytest.param("12e3", 12000, id="an exponent"),
        pytest.param("1E", 10**18, id="exa, no exponent"),
        pytest.param("-3k", -3000, id="negative"),
        pytest.param(".5", 0.5, id="no digit before the point"),
        pytest.param("1ki", None, id="no such suffix"),
        pytest.param("1 Gi", None, id="a space"),
        pytest.param("", None, id="nothing"),
        pytest.param("Gi", None, id="no number"),
        pytest.param("1e999", None, id="an exponent beyond reason"),
        pytest.param(True, None, id="a flag"),
        pytest.param(10**50, None, id="an int beyond reason"),
        pytest.param(float("nan"), None, id="no number at all"),
        pytest.param({"a": 1}, None, id="a mapping"),
    ],
)
def test_a_quantity_is_read_exactly(written: object, value: float | None) -> None:
    assert quantity(written) == value


@given(st.integers(0, 10**9), st.sampled_from(["m", "", "k", "Ki", "Mi", "Gi", "n", "u"]))
def test_it_is_the_nearest_float_to_the_exact_value(number: int, suffix: str) -> None:
    steps: dict[str, Fraction] = {
        "n": Fraction(1, 10**9),
        "u": Fraction(1, 10**6),
        "m": Fraction(1, 1000),
        "": Fraction(1),
        "k": Fraction(1000),
        "Ki": Fraction(1024),
        "Mi": Fraction(1024**2),
        "Gi": Fraction(1024**3),
    }
    assert quantity(f"{number}{suffix}") == float(number * steps[suffix])


@pytest.mark.parametrize(
    ("written", "value"),
    [
        pytest.param("1h30m", 5400, id="hours and minutes"),
        pytest.param("15s", 15, id="seconds"),
        pytest.param("500ms", 0.5, id="milliseconds, no minutes"),
        pytest.param("90", 90, id="a bare number"),
        pytest.param("1.5m", 90, id="a fraction"),
        pytest.param("10 minutes", None, id="words"),
        pytest.param("-5s", None, id="negative"),
    ],
)
def test_a_duration_is_in_seconds(written: object, value: float | None) -> None:
    assert duration_s(written) == value


def test_times_are_of_any_zone() -> None:
    first, second = time_s("2025-01-31T08:00:00Z"), time_s("2025-01-31T10:00:30+02:00")
    assert first is not None
    assert second is not None
    assert second - first == 30
    assert time_s("yesterday") is None
    assert time_s(5) is None
