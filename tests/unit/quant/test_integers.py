"""Integer formats: worked examples, and where the scales lie."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.quant.formats import Scope, Values
from mileage.quant.integers import fake_int
from mileage.quant.ranges import Ranges, ranges_of


def _column(*values: float) -> Values:
    """One head of one channel."""
    return np.array(values, dtype=np.float32).reshape(-1, 1, 1)


def test_symmetric_numbers_are_multiples_of_the_greatest_over_seven() -> None:
    values = np.array([[[7.0, -3.4, 0.5, 1.5]]], dtype=np.float32)

    found = fake_int(values, bits=4, scope="token")

    assert found.tolist() == [[[7.0, -3.0, 0.0, 2.0]]]  # halves go to the even step


def test_asymmetric_numbers_start_at_the_minimum() -> None:
    values = np.array([[[10.0, 13.0, 11.2, 11.9]]], dtype=np.float32)

    found = fake_int(values, bits=2, scope="token", symmetric=False)

    assert found.tolist() == [[[10.0, 13.0, 11.0, 12.0]]]


def test_each_group_of_channels_has_its_own_scale() -> None:
    values = np.array([[[0.0, 3.0, 0.0, 300.0]]], dtype=np.float32)

    found = fake_int(values, bits=2, scope="token", group=2, symmetric=False)

    assert found.tolist() == values.tolist()


def test_a_channel_s_groups_are_of_tokens_and_the_open_one_is_kept_as_it_is() -> None:
    values = _column(0.0, 3.0, 1.4, 0.0, 0.123, 0.456)

    found = fake_int(values, bits=2, scope="channel", group=4, symmetric=False)

    assert found[:, 0, 0].tolist() == pytest.approx([0.0, 3.0, 1.0, 0.0, 0.123, 0.456])


def test_text_shorter_than_a_group_is_kept_as_it_is() -> None:
    values = _column(0.1, 0.2)

    assert fake_int(values, bits=2, scope="channel", group=4, symmetric=False) is values


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        pytest.param("tensor", [0.0, -6.0, 0.0, 4.0], id="one scale for all"),
        pytest.param("head", [1.0, -3.0, 0.0, 4.0], id="one for each head"),
        pytest.param("channel", [1.0, -3.0, 1 / 6, 4.0], id="one for each channel"),
    ],
)
def test_scales_fixed_beforehand_come_from_the_ranges(scope: Scope, expected: list[float]) -> None:
    """Three steps to each side; what the calibration text did not show saturates."""
    high = np.array([[1.0, 3.0], [0.5, 6.0]], dtype=np.float32)
    values = np.array([[[0.9, -9.0], [0.2, 4.1]]], dtype=np.float32)

    found = fake_int(values, bits=3, scope=scope, ranges=Ranges(low=-0.5 * high, high=high))

    assert found.ravel().tolist() == pytest.approx(expected)


def test_scales_fixed_beforehand_cannot_be_without_ranges() -> None:
    with pytest.raises(ValueError, match="scope tensor are fixed beforehand"):
        fake_int(_column(1.0), bits=8, scope="tensor")


@pytest.mark.parametrize("symmetric", [True, False])
def test_equal_numbers_stay_what_they_are(symmetric: bool) -> None:
    values = np.full((3, 2, 8), 0.5, dtype=np.float32)
    zeros = np.zeros((3, 2, 8), dtype=np.float32)

    assert (fake_int(values, bits=4, scope="token", symmetric=False) == values).all()
    assert (fake_int(zeros, bits=4, scope="token", symmetric=symmetric) == zeros).all()


def test_ranges_are_those_of_all_windows() -> None:
    found = ranges_of([_column(1.0, 2.0), _column(-3.0), _column(0.0)])

    assert (found.low.item(), found.high.item(), found.largest) == (-3.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="at least one window"):
        ranges_of([])
