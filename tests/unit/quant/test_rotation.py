"""Hadamard rotation: orthogonal, its own inverse, and free for the scores."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.quant.formats import format_named
from mileage.quant.quantised import quantised
from mileage.quant.rotation import hadamard, rotated


@pytest.mark.parametrize("size", [1, 2, 64, 128])
def test_the_matrix_is_its_own_inverse(size: int) -> None:
    assert hadamard(size) @ hadamard(size) == pytest.approx(np.eye(size), abs=1e-5)
    assert (hadamard(size) == hadamard(size).T).all()


@pytest.mark.parametrize("size", [0, 3, 96])
def test_other_sizes_have_none(size: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        hadamard(size)


def test_scores_of_rotated_queries_and_keys_are_those_of_the_plain_ones() -> None:
    generator = np.random.default_rng(1)
    q, k = generator.standard_normal((2, 5, 1, 64)).astype(np.float32)

    plain, turned = q[:, 0] @ k[:, 0].T, rotated(q)[:, 0] @ rotated(k)[:, 0].T

    assert turned == pytest.approx(plain, abs=1e-4)


def test_an_outlier_costs_less_after_a_rotation() -> None:
    generator = np.random.default_rng(2)
    values = generator.standard_normal((64, 1, 64)).astype(np.float32)
    values[:, :, 7] *= 50.0

    def error(name: str) -> float:
        return float(np.square(quantised(values, format_named(name)) - values)[:, :, :7].mean())

    assert error("int4-token+rot") < 0.5 * error("int4-token")
