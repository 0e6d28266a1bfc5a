"""FP8 and NVFP4: every number that a format holds, ties, saturation, scales."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.quant.floats import FloatKind, fake_fp8, fake_nvfp4, to_float
from mileage.quant.ranges import Ranges

LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "e2m1": 6.0}
LAYOUT = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m1": (2, 1, 1)}
"""Bits of the exponent and the mantissa, and the exponent's bias."""


def _numbers(kind: FloatKind) -> list[float]:
    """All that are not below zero, by their bits: an even index is an even mantissa."""
    exponent_bits, mantissa_bits, bias = LAYOUT[kind]
    found = []
    for exponent in range(2**exponent_bits):
        for mantissa in range(2**mantissa_bits):
            part = mantissa / 2**mantissa_bits
            small = part * 2.0 ** (1 - bias)
            found.append((1.0 + part) * 2.0 ** (exponent - bias) if exponent else small)
    return [number for number in found if number <= LARGEST[kind]]


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m1"])
def test_rounding_goes_to_the_nearest_number_that_the_bits_hold(kind: FloatKind) -> None:
    numbers = np.array(_numbers(kind))
    assert numbers[-1] == LARGEST[kind]
    generator = np.random.default_rng(1)
    spread = np.exp(generator.uniform(np.log(numbers[1] / 9.0), np.log(numbers[-1]), 2000))
    ties = (numbers[1:] + numbers[:-1]) / 2.0
    values = np.concatenate((spread, numbers, ties)).astype(np.float32)

    away = np.abs(values[:, None].astype(np.float64) - numbers[None, :])
    odd = np.arange(len(numbers)) % 2
    expected = numbers[np.lexsort((np.broadcast_to(odd, away.shape), away), axis=1)[:, 0]]

    assert to_float(values, kind).tolist() == expected.tolist()
    assert to_float(-values, kind).tolist() == (-expected).tolist()


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m1"])
def test_beyond_the_largest_is_the_largest(kind: FloatKind) -> None:
    values = np.array([1e9, -1e9], dtype=np.float32)

    assert to_float(values, kind).tolist() == [LARGEST[kind], -LARGEST[kind]]


def test_numbers_that_e2m1_holds() -> None:
    values = np.array([0.0, 0.25, 0.26, 0.75, 1.24, 2.5, 3.5, 5.0, 5.1, 9.0], dtype=np.float32)

    assert to_float(values, "e2m1").tolist() == [0, 0, 0.5, 1, 1, 2, 4, 4, 6, 6]


def test_a_token_s_scale_brings_its_greatest_number_to_the_largest() -> None:
    values = np.array([[[0.5, 0.25]], [[896.0, 3.0]]], dtype=np.float32)

    found = fake_fp8(values, kind="e4m3", scope="token")

    assert found[1, 0].tolist() == [896.0, 3.0]
    assert found[0, 0].tolist() == pytest.approx([0.5, 0.25], rel=1e-3)


def test_without_a_scale_great_numbers_saturate() -> None:
    values = np.array([[[1000.0, 1.0]]], dtype=np.float32)

    assert fake_fp8(values, kind="e4m3").tolist() == [[[448.0, 1.0]]]


def test_a_scale_fixed_beforehand_comes_from_the_ranges() -> None:
    ranges = Ranges(low=np.full((1, 2), -896, np.float32), high=np.full((1, 2), 7, np.float32))
    values = np.array([[[1000.0, 1.0]]], dtype=np.float32)

    assert fake_fp8(values, kind="e4m3", scope="tensor", ranges=ranges).tolist() == [[[896.0, 1.0]]]
    with pytest.raises(ValueError, match="scope head are fixed beforehand"):
        fake_fp8(values, kind="e4m3", scope="head")


def test_nvfp4_by_hand() -> None:
    """The tensor's greatest number 2688 = 448 * 6 makes its scale 1; the block's scale is E4M3."""
    ranges = Ranges(low=np.zeros((1, 32), np.float32), high=np.full((1, 32), 2688.0, np.float32))
    values = np.zeros((1, 1, 32), dtype=np.float32)
    values[0, 0, :4] = [12.0, 5.0, 3.1, -7.0]  # 12 / 6 = 2 is the scale of the first block
    values[0, 0, 16:18] = [6.6, 1.0]  # 1.1 becomes 1.125

    found = fake_nvfp4(values, ranges)[0, 0]

    assert found[:4].tolist() == [12.0, 4.0, 3.0, -8.0]
    assert found[16:18].tolist() == [6.75, 1.125]
    assert not found[4:16].any()


def test_nvfp4_of_nothing_but_zeros() -> None:
    zeros = np.zeros((2, 1, 16), dtype=np.float32)
    ranges = Ranges(low=zeros[0], high=zeros[0])

    assert not fake_nvfp4(zeros, ranges).any()
