"""Several schedulers on one page: what adds up, what is a mean, what is the same thing twice."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.replica import ReplicaView
from mileage.scrape.reading import view


def page(name: str, *rows: tuple[dict[str, str], float | str]) -> str:
    """Lines of one series."""
    lines = []
    for labels, value in rows:
        inner = ",".join(f'{key}="{text}"' for key, text in labels.items())
        lines.append(f"{name}{{{inner}}} {value}\n")
    return "".join(lines)


def seen(kind: str, text: str) -> ReplicaView:
    """The view of the page."""
    return view(kind, text.encode(), "r", 0.0)


RUNNING = "vllm:num_requests_running"
USAGE = "vllm:kv_cache_usage_perc"
CONFIG = "vllm:cache_config_info"


def test_counts_of_data_parallel_engines_add_up() -> None:
    text = page(RUNNING, ({"engine": "0"}, 3), ({"engine": "1"}, 4))
    text += page("vllm:num_preemptions_total", ({"engine": "0"}, 1), ({"engine": "1"}, 2))
    assert (seen("vllm", text).running, seen("vllm", text).preemptions_total) == (7, 3.0)


def test_cache_usage_is_the_used_share_of_all_engines_caches() -> None:
    usage = page(USAGE, ({"engine": "0", "model_name": "m"}, 0.1), ({"engine": "1"}, 0.9))
    config = page(
        CONFIG,
        ({"engine": "0", "block_size": "16", "num_gpu_blocks": "300"}, 1),
        ({"engine": "1", "block_size": "16", "num_gpu_blocks": "100"}, 1),
    )
    both = seen("vllm", usage + config)
    assert both.kv_cache_usage_ratio == pytest.approx((0.1 * 300 + 0.9 * 100) / 400)
    assert both.kv_tokens_max == 6400
    assert seen("vllm", usage).kv_cache_usage_ratio == pytest.approx(0.5)


def test_a_cache_size_known_for_some_engines_is_not_the_whole() -> None:
    text = page(USAGE, ({"engine": "0"}, 0.2), ({"engine": "1"}, 0.4))
    text += page(CONFIG, ({"engine": "0", "block_size": "16", "num_gpu_blocks": "300"}, 1))
    found = seen("vllm", text)
    assert found.kv_tokens_max is None
    assert found.kv_cache_usage_ratio == pytest.approx(0.3)


def test_models_of_one_server_add_up() -> None:
    requests = "nv_trt_llm_request_metrics"
    blocks = "nv_trt_llm_kv_cache_block_metrics"
    text = page(
        requests,
        ({"model": "a", "request_type": "scheduled", "version": "1"}, 1),
        ({"model": "b", "request_type": "scheduled", "version": "1"}, 2),
        ({"model": "b", "request_type": "waiting", "version": "1"}, 5),
    )
    for model, size, share in (("a", 10, 1.0), ("b", 30, 0.2)):
        for key, value in (("max", size), ("tokens_per", 64), ("fraction", share)):
            text += page(blocks, ({"model": model, "kv_cache_block_type": key}, value))
    found = seen("triton", text)
    assert (found.running, found.waiting, found.kv_tokens_max) == (3, 5, 40 * 64)
    assert found.kv_cache_usage_ratio == pytest.approx(0.4)


def test_tensor_parallel_ranks_report_the_same_requests() -> None:
    rows = [({"tp_rank": str(rank), "pp_rank": "0"}, value) for rank, value in ((0, 5), (1, 4))]
    assert seen("sglang", page("sglang:num_running_reqs", *rows)).running == 5


def test_data_parallel_ranks_of_sglang_add_up() -> None:
    rows = [
        ({"dp_rank": dp, "tp_rank": tp}, value)
        for dp, tp, value in (("0", "0", 5), ("0", "1", 5), ("1", "2", 7), ("1", "3", 6))
    ]
    assert seen("sglang", page("sglang:num_running_reqs", *rows)).running == 12


def test_series_by_priority_are_part_of_the_one_of_all() -> None:
    rows: list[tuple[dict[str, str], float]] = [({"priority": ""}, 5), ({"priority": "0"}, 3)]
    assert seen("sglang", page("sglang:num_queue_reqs", *rows)).waiting == 5


def test_a_series_given_twice_counts_once_with_its_later_value() -> None:
    assert seen("vllm", page(RUNNING, ({"engine": "0"}, 3), ({"engine": "0"}, 4))).running == 4


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("NaN", id="not a number"),
        pytest.param("-1", id="negative"),
        pytest.param("+Inf", id="infinite"),
        pytest.param("1e300", id="absurdly large"),
        pytest.param("9223372036854775794", id="a blank of a 64-bit counter"),
        pytest.param("2000000000", id="more requests than any engine holds"),
        pytest.param("2.5", id="half a request"),
    ],
)
def test_an_impossible_count_is_none_and_so_is_a_sum_with_it(value: str) -> None:
    assert seen("vllm", page(RUNNING, ({}, value))).running is None
    if value not in ("2.5", "2000000000"):
        text = page(RUNNING, ({"engine": "0"}, 3), ({"engine": "1"}, value))
        assert seen("vllm", text).running is None


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300", "9223372036854775794"])
def test_an_impossible_total_is_none(value: str) -> None:
    assert seen("vllm", page("vllm:prompt_tokens_total", ({}, value))).prompt_tokens_total is None


@pytest.mark.parametrize(
    ("value", "ratio"),
    [
        pytest.param("0", 0.0, id="empty"),
        pytest.param("1", 1.0, id="full"),
        pytest.param("1.0000001", 1.0, id="full, with a rounding error"),
        pytest.param("1.5", None, id="more than full"),
        pytest.param("50", None, id="percent, where a ratio is due"),
        pytest.param("-0.1", None, id="negative"),
        pytest.param("NaN", None, id="not a number"),
        pytest.param("1e300", None, id="absurd"),
    ],
)
def test_a_ratio_is_in_0_to_1(value: str, ratio: float | None) -> None:
    assert seen("vllm", page(USAGE, ({}, value))).kv_cache_usage_ratio == ratio


def test_one_impossible_ratio_spoils_the_mean() -> None:
    text = page(USAGE, ({"engine": "0"}, 0.5), ({"engine": "1"}, 1.5))
    assert seen("vllm", text).kv_cache_usage_ratio is None


RANKS = st.dictionaries(
    st.integers(0, 99), st.tuples(st.integers(0, 1000), st.floats(0, 1)), min_size=1, max_size=8
)


@given(RANKS, st.randoms(use_true_random=False))
def test_the_order_of_series_does_not_matter(
    ranks: dict[int, tuple[int, float]], rng: random.Random
) -> None:
    lines = []
    for rank, (running, usage) in ranks.items():
        labels = {"engine": str(rank)}
        size = {"engine": str(rank), "block_size": "16", "num_gpu_blocks": str(running + 1)}
        lines += [page(RUNNING, (labels, running)), page(USAGE, (labels, usage))]
        lines.append(page(CONFIG, (size, 1)))
    rng.shuffle(lines)
    found = seen("vllm", "".join(lines))
    assert found.running == sum(running for running, _ in ranks.values())
    assert found.kv_tokens_max == 16 * sum(running + 1 for running, _ in ranks.values())
    usages = [usage for _, usage in ranks.values()]
    assert found.kv_cache_usage_ratio is not None
    assert min(usages) - 1e-9 <= found.kv_cache_usage_ratio <= max(usages) + 1e-9


def test_a_page_of_very_many_schedulers_takes_bounded_time() -> None:
    rows: list[tuple[dict[str, str], float]] = [
        ({"engine": str(i), "model_name": str(i)}, 0.5) for i in range(9_000)
    ]
    config = page(
        CONFIG,
        *(({"engine": str(i), "block_size": "16", "num_gpu_blocks": "9"}, 1) for i in range(9_000)),
    )
    start_s = time.process_time()
    assert seen("vllm", page(USAGE, *rows) + config).kv_tokens_max == 9_000 * 16 * 9
    assert time.process_time() - start_s < 10
