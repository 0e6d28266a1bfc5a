"""Sizes of CUDA graphs: the dynamic programme against all subsets, vLLM's default, and limits."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.policy.graph_buckets import (
    GRAPH_SIZE_MAX,
    GraphCost,
    Histogram,
    StepSeconds,
    graph_waste,
    linear_step_s,
    optimal_graph_sizes,
    vllm_graph_sizes,
)

STEP_S = linear_step_s(8e-3, 1e-5)
EAGER_S = 3e-3


def stepped_s(rows: int) -> float:
    """Tiles of 4 rows, and a kink, as GPUs have."""
    return 5e-3 + 2e-4 * -(-rows // 4) + 1e-3 * max(0, rows - 6)


def lost_s(
    histogram: Histogram,
    sizes: Iterable[int],
    *,
    size_s: float = 0.0,
    eager_s: float = EAGER_S,
    step_s: StepSeconds = STEP_S,
) -> float:
    """What the sizes cost together."""
    chosen = tuple(sizes)
    found = graph_waste(histogram, chosen, step_s, eager_extra_s=eager_s)
    return found.padding_s + found.eager_s + size_s * len(chosen)


histograms = st.dictionaries(st.integers(1, 9), st.floats(0.5, 1e4), min_size=1, max_size=5)
wide_histograms = st.dictionaries(st.integers(1, 512), st.floats(0.5, 1e6), min_size=1, max_size=60)


@settings(deadline=None, max_examples=40)
@given(
    histograms,
    st.integers(1, 4),
    st.sampled_from([0.0, 1e-3, 0.5]),
    st.sampled_from([0.0, 1e-4, 0.1]),
    st.sampled_from([STEP_S, stepped_s]),
    st.booleans(),
)
def test_no_subset_of_all_sizes_is_better(
    histogram: dict[int, float],
    sizes_max: int,
    size_s: float,
    eager_s: float,
    step_s: StepSeconds,
    covered: bool,
) -> None:
    cover = max(histogram) if covered else 0
    price = partial(lost_s, histogram, size_s=size_s, eager_s=eager_s, step_s=step_s)
    for limit in (sizes_max, None):
        chosen = optimal_graph_sizes(
            histogram,
            step_s,
            eager_extra_s=eager_s,
            size_s=size_s,
            sizes_max=limit,
            size_max=9,
            cover=cover,
        )
        assert list(chosen) == sorted(set(chosen))
        assert chosen[-1] >= cover
        best = min(
            price(subset)
            for count in range(1, (limit or 5) + 1)
            for subset in combinations(range(1, 10), count)
            if subset[-1] >= cover
        )
        assert len(chosen) <= (limit or 5)
        assert price(chosen) == pytest.approx(best, rel=1e-9, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(wide_histograms, st.integers(1, 512))
def test_it_is_never_worse_than_vllms_sizes_with_as_many(
    histogram: dict[int, float], max_num_seqs: int
) -> None:
    default = vllm_graph_sizes(max_num_seqs)
    chosen = optimal_graph_sizes(
        histogram,
        STEP_S,
        eager_extra_s=EAGER_S,
        sizes_max=len(default),
        size_max=default[-1],
    )
    assert len(chosen) <= len(default)
    assert lost_s(histogram, chosen) <= lost_s(histogram, default) * (1 + 1e-9) + 1e-9


@settings(deadline=None, max_examples=20)
@given(wide_histograms)
def test_more_sizes_never_lose_more(histogram: dict[int, float]) -> None:
    lost = [
        lost_s(
            histogram,
            optimal_graph_sizes(
                histogram, STEP_S, eager_extra_s=EAGER_S, sizes_max=count, cover=max(histogram)
            ),
        )
        for count in (1, 2, 3, 8, 60)
    ]
    slack = 1e-9 * (1 + lost[0])
    assert all(after <= before + slack for before, after in pairwise(lost))
    assert lost[-1] <= slack


def test_a_size_is_left_out_that_costs_more_than_it_saves() -> None:
    histogram = {8: 1000.0, 9: 1.0, 100: 1000.0}
    free = optimal_graph_sizes(histogram, STEP_S, eager_extra_s=EAGER_S)
    priced = optimal_graph_sizes(histogram, STEP_S, eager_extra_s=EAGER_S, size_s=0.02)
    assert (free, priced) == ((8, 9, 100), (8, 100))


@pytest.mark.parametrize(
    ("cover", "sizes"),
    [
        pytest.param(0, (4,), id="cheaper without a graph: none"),
        pytest.param(500, (4, 500), id="must have one"),
        pytest.param(512, (4, 512), id="more rows than were observed must have one"),
    ],
)
def test_rare_large_steps(cover: int, sizes: tuple[int, ...]) -> None:
    found = optimal_graph_sizes(
        {4: 1e4, 500: 1.0}, STEP_S, eager_extra_s=EAGER_S, size_s=0.01, cover=cover
    )
    assert found == sizes


def test_steps_above_the_largest_size_run_without_a_graph() -> None:
    histogram = {4: 10.0, 600: 2.0}
    sizes = optimal_graph_sizes(histogram, STEP_S, eager_extra_s=EAGER_S)
    found = graph_waste(histogram, sizes, STEP_S, eager_extra_s=EAGER_S)
    assert sizes == (4,)
    assert (found.padding_s, found.eager_steps) == (0.0, 2.0)
    assert found.eager_s == pytest.approx(2 * EAGER_S)
    assert optimal_graph_sizes({600: 2.0}, STEP_S, eager_extra_s=EAGER_S) == (1,)


def test_waste_is_the_time_of_rows_that_nobody_asked_for() -> None:
    found = graph_waste(
        {3: 10.0, 8: 5.0}, (4, 8), STEP_S, eager_extra_s=EAGER_S, context_row_s=1e-4
    )
    assert found.padding_s == pytest.approx(10 * 1e-5)
    assert found.useful_s == pytest.approx(10 * (8.03e-3 + 3e-4) + 5 * (8.08e-3 + 8e-4))
    assert found.padding_ratio == pytest.approx(found.padding_s / found.total_s)
    assert found.eager_ratio == 0.0


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param(vllm_graph_sizes(3), (1, 2, 3, 4), id="twice the requests, and they"),
        pytest.param(vllm_graph_sizes(5), (1, 2, 4, 5, 8), id="by 8"),
        pytest.param(vllm_graph_sizes(30)[-4:], (32, 40, 48, 56), id="not above 60"),
        pytest.param(vllm_graph_sizes(256)[-3:], (480, 496, 512), id="by 16, up to 512"),
        pytest.param(vllm_graph_sizes(1024)[-1:], (512,), id="not above 512"),
        pytest.param(vllm_graph_sizes(1024, size_max=1024)[-1:], (1024,), id="Blackwell"),
        pytest.param(vllm_graph_sizes(100, step_tokens_max=70)[-2:], (64, 70), id="budget"),
    ],
)
def test_vllms_own_sizes(sizes: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert sizes == expected
    assert len(vllm_graph_sizes(256)) == 51


def test_a_size_costs_its_memory_and_its_start() -> None:
    cost = GraphCost(memory_bytes=8e8, start_s=1.0, device_bytes=80e9, horizon_s=1000.0)
    assert cost.ratio == pytest.approx(0.01 + 0.001)
    assert 1e-4 < GraphCost().ratio < 1e-3


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"sizes_max": 0}, "sizes_max"),
        ({"size_max": 0}, "size_max"),
        ({"size_max": GRAPH_SIZE_MAX + 1}, "size_max"),
        ({"size_max": 8, "cover": 9}, "cover"),
    ],
)
def test_bounds_that_cannot_be_are_named(arguments: dict[str, int], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        optimal_graph_sizes(
            {1: 1.0},
            STEP_S,
            eager_extra_s=0.0,
            sizes_max=arguments.get("sizes_max"),
            size_max=arguments.get("size_max", 8),
            cover=arguments.get("cover", 0),
        )
    assert error.value.key == key
    with pytest.raises(ConfigError):
        GraphCost(horizon_s=0.0)
