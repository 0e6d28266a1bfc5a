"""Numbers of profilers in any locale, and units of columns."""

from __future__ import annotations

import pytest

from mileage.doctor.collect.profile_numerals import Numerals, unit_of


@pytest.mark.parametrize(
    ("text", "cells", "value"),
    [
        pytest.param("17,466,880.00", (), 17466880, id="groups and a point"),
        pytest.param("17.466.880,25", (), 17466880.25, id="groups and a decimal comma"),
        pytest.param("1,234", (), 1234, id="a lone comma that can group does"),
        pytest.param("1,234", ("0,5",), 1.234, id="unless another cell has a decimal comma"),
        pytest.param("1.234", ("0,5",), 1234, id="and then a point groups"),
        pytest.param("1.234", ("0.5",), 1.234, id="a point is decimal"),
        pytest.param("12,5", (), 12.5, id="a comma that cannot group is decimal"),
        pytest.param("1 234,5", (), 1234.5, id="no-break spaces group"),
        pytest.param("1'234.5", (), 1234.5, id="apostrophes group"),
        pytest.param("42%", (), 42, id="a percent sign is no part of it"),
        pytest.param("-3", (), -3, id="below zero"),
        pytest.param("5e-08", (), 5e-08, id="an exponent"),
        pytest.param("n/a", (), None, id="no number"),
        pytest.param("", (), None, id="nothing"),
        pytest.param("9" * 65, (), None, id="too long to be one"),
        pytest.param("1e999", (), None, id="too large to be one"),
    ],
)
def test_a_number_is_read(text: str, cells: tuple[str, ...], value: float | None) -> None:
    assert Numerals(cells).number(text) == value


@pytest.mark.parametrize(
    ("header", "name", "unit"),
    [
        pytest.param("Total Time (ns)", "total time", "ns", id="a unit in brackets"),
        pytest.param("Duration (μs)", "duration", "μs", id="a Greek one"),
        pytest.param('"Name"', "name", "", id="none, in quotes"),
        pytest.param("SM [%]", "sm", "%", id="square brackets"),
    ],
)
def test_a_column_has_a_name_and_a_unit(header: str, name: str, unit: str) -> None:
    assert unit_of(header) == (name, unit)
