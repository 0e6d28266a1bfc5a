"""The bound holds for every format, is reached where it can be, and what breaks it is counted."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.quant.formats import FORMATS, Values, format_named
from mileage.quant.quantised import quantised
from mileage.quant.ranges import ranges_of
from mileage.quant.score_bound import ScoreBound, score_bound

SCALE = 64**-0.5


def _values(seed: int, heads: int) -> Values:
    """Some channels are outliers."""
    generator = np.random.default_rng(seed)
    sizes = np.exp(generator.standard_normal((1, heads, 64)))
    return (generator.standard_normal((80, heads, 64)) * sizes).astype(np.float32)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("queries_too", [False, True])
def test_no_format_goes_beyond_the_bound(name: str, queries_too: bool) -> None:
    q, k = _values(1, 4), _values(2, 2)
    kv_format = format_named(name)
    stored = quantised(k, kv_format, ranges_of([k]))
    stored_q = quantised(q, kv_format, ranges_of([q])) if queries_too else None

    found = score_bound(q, k, stored, scale=SCALE, stored_q=stored_q)

    assert found.violations == 0
    assert found.largest_ratio is not None
    assert 0.05 < found.largest_ratio <= 1.0


def test_the_real_error_is_that_of_the_scores() -> None:
    """Head by head, two query heads to each head of keys."""
    q, k = _values(3, 4), _values(4, 2)
    stored = quantised(k, format_named("q4_0"))

    found = score_bound(q, k, stored, scale=SCALE)

    for head in range(4):
        wrong = SCALE * q[:, head] @ (stored - k)[:, head // 2].T
        assert found.real[head] == pytest.approx(np.linalg.norm(wrong, ord=2), rel=1e-4)


def test_quantised_queries_add_their_terms() -> None:
    q, k = _values(3, 2), _values(4, 2)
    form = format_named("q4_0")
    stored, stored_q = quantised(k, form), quantised(q, form)

    found = score_bound(q, k, stored, scale=SCALE, stored_q=stored_q)

    for head in range(2):
        wrong = SCALE * (stored_q[:, head] @ stored[:, head].T - q[:, head] @ k[:, head].T)
        assert found.real[head] == pytest.approx(np.linalg.norm(wrong, ord=2), rel=1e-3)
    assert (found.bound > score_bound(q, k, stored, scale=SCALE).bound).all()


def test_it_is_reached_where_errors_point_along_the_queries() -> None:
    """One direction for all: the norm of the product is the product of the norms."""
    direction = np.zeros(64, dtype=np.float32)
    direction[5] = 1.0
    q = np.full((8, 1, 1), 3.0, dtype=np.float32) * direction
    k = np.zeros((8, 1, 64), dtype=np.float32)

    found = score_bound(q, k, k + 0.5 * direction, scale=1.0)

    assert found.real.tolist() == pytest.approx(found.bound.tolist())
    assert found.violations == 0


def test_nothing_stored_otherwise_has_no_ratio() -> None:
    q = _values(1, 2)

    assert score_bound(q, q, q, scale=SCALE).largest_ratio is None


def test_what_breaks_the_bound_is_counted() -> None:
    found = ScoreBound(real=np.array([1.0, 1.1, 2.0]), bound=np.array([1.0, 1.0, 3.0]))

    assert found.violations == 1
