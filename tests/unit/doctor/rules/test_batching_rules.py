"""A cap that is reached, chunks that are too small; and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.batching import RULES

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in RULES if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


@pytest.mark.parametrize(
    ("settings", "signals", "workload", "outcome"),
    [
        pytest.param(
            {"max_num_seqs": 8},
            {"requests_running": 7.9, "requests_waiting": 3.5},
            {},
            FINDING,
            id="all slots taken but for the step between two requests, and a queue",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running_max": 48, "requests_waiting": {"min": 1}},
            {},
            FINDING,
            id="the largest batch seen is the cap, and some wait",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": [48, 48], "requests_waiting": [9, 4]},
            {},
            FINDING,
            id="every replica at its cap",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": [48, 5], "requests_waiting": [9, 0]},
            {},
            CLEAR,
            id="one replica at its cap while another has slots: routing",
        ),
        pytest.param(
            {"max_num_seqs": 48, "data_parallel_size": 4},
            {"requests_running": 192, "requests_waiting": 40},
            {},
            FINDING,
            id="the count is of all ranks together",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": 48, "requests_waiting": 0},
            {"concurrency": 48},
            CLEAR,
            id="cap reached and nobody waits",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": 22, "requests_waiting": 60},
            {},
            CLEAR,
            id="a queue with slots free: something else holds them back",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running_max": 20, "requests_waiting": 0},
            {"concurrency": 200},
            CLEAR,
            id="many wanted, few arrive: a proxy or the client",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": 48, "requests_waiting": 60, "kv_cache_usage_ratio": 0.98},
            {},
            CLEAR,
            id="cap reached and no room either: a higher cap would preempt",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {
                "requests_running": 48,
                "requests_waiting": 2,
                "ttft_p99_s": 0.7,
                "itl_p99_s": 0.04,
            },
            {"slo_ttft_s": 1, "slo_itl_s": 0.05},
            CLEAR,
            id="the cap keeps latency targets that are met",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": 48, "requests_waiting": 200, "ttft_p99_s": 9},
            {"slo_ttft_s": 1},
            FINDING,
            id="the queue misses the target of the first token",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": 48, "requests_waiting": 200, "itl_p99_s": 0.047},
            {"slo_itl_s": 0.05},
            CLEAR,
            id="the time between tokens is at its target: no room for a larger batch",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": 48, "requests_waiting": 200, "itl_p99_s": 0.012},
            {"slo_itl_s": 0.05},
            FINDING,
            id="far from the target between tokens, and a queue",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": {"min": 30, "max": 48}, "requests_waiting": {"min": 1}},
            {},
            OPEN,
            id="bounds wider than what decides",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": 48},
            {},
            OPEN,
            id="whether anybody waits is not known",
        ),
        pytest.param(
            {"max_num_seqs": 48},
            {"requests_running": 48, "queue_time_mean_s": 4.1, "ttft_mean_s": 4.6},
            {},
            FINDING,
            id="the wait for the first token is the wait for a slot",
        ),
        pytest.param(
            {"max_num_seqs": 4},
            {"kv_cache_usage_ratio": 0.1},
            {"concurrency": 64},
            FINDING,
            id="sixteen times as many wanted as may run, and an empty cache",
        ),
        pytest.param({"max_num_seqs": 4}, {}, {}, OPEN, id="a small cap alone"),
        pytest.param(
            {"max_num_seqs": 4},
            {"requests_running": 3.9, "requests_waiting": 0.2},
            {"concurrency": 4},
            CLEAR,
            id="a closed loop of as many clients as slots: one waits for a moment",
        ),
        pytest.param(
            {"max_num_seqs": 2},
            {"requests_running": 1.7, "requests_running_max": 2, "requests_waiting": 6.1},
            {},
            FINDING,
            id="short answers: slots are empty for a moment, and a queue",
        ),
        pytest.param(
            {"max_num_seqs": 512},
            {"requests_running": 512, "client_requests_in_flight_max": 100},
            {"concurrency": 2000},
            CLEAR,
            id="fewer come than the cap allows",
        ),
    ],
)
def test_batch_cap(
    settings: dict[str, Any], signals: dict[str, Any], workload: dict[str, Any], outcome: str
) -> None:
    facts = {"settings": settings, "signals": signals, "workload": workload}
    assert opinion("BAT001", facts).outcome == outcome


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "other"])
def test_the_cap_is_found_on_any_engine(engine: str) -> None:
    facts = {
        "engine": {"name": engine},
        "settings": {"max_num_seqs": 2},
        "signals": {"requests_running": 2, "requests_waiting": 5.5},
    }
    assert opinion("BAT001", facts).outcome == FINDING


def test_a_default_cap_is_known_by_the_number_that_the_batch_stands_at() -> None:
    facts = {
        "engine": {"name": "vllm"},
        "signals": {"requests_running": 256, "requests_waiting": 80, "kv_cache_usage_ratio": 0.4},
    }
    assert opinion("BAT001", facts).outcome == FINDING
    facts["signals"] = {"requests_running": 100, "requests_waiting": 80}
    assert opinion("BAT001", facts).outcome == OPEN


def test_a_higher_cap_that_was_faster_shows_that_the_lower_one_bound() -> None:
    pair: list[dict[str, Any]] = [
        {"settings": {"max_num_seqs": 16}, "signals": {"output_tokens_per_s": 700}},
        {"settings": {"max_num_seqs": 64}, "signals": {"output_tokens_per_s": 1500}},
    ]
    assert opinion("BAT001", {"comparisons": arms(*pair)}).outcome == FINDING
    pair[1]["current"] = True
    assert opinion("BAT001", {"comparisons": arms(*pair)}).outcome != FINDING, "already raised"


def test_throughput_that_is_flat_above_the_cap_shows_it() -> None:
    load = [(8, 400), (16, 760), (32, 770), (64, 765)]
    sweep = [
        {"workload": {"concurrency": many}, "signals": {"output_tokens_per_s": rate}}
        for many, rate in load
    ]
    facts = {"settings": {"max_num_seqs": 16}, "comparisons": arms(*sweep)}
    assert opinion("BAT001", facts).outcome == FINDING


def test_the_advice_stays_within_what_the_cache_holds() -> None:
    facts = {
        "settings": {"max_num_seqs": 40},
        "signals": {"requests_running": 40, "requests_waiting": 900, "kv_cache_usage_ratio": 0.6},
    }
    found = opinion("BAT001", facts)
    assert [(change.setting, change.value) for change in found.changes] == [("max_num_seqs", 60)]
    assert found.waste_ratio is not None
    assert found.waste_ratio.high == pytest.approx(1 - 40 / 60)


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {
                "workload": {"kind": "offline", "isl_tokens": {"min": 20000}},
                "settings": {"max_num_batched_tokens": 2048},
            },
            FINDING,
            id="ten chunks for each prompt of a job",
        ),
        pytest.param(
            {
                "workload": {"kind": "offline", "isl_tokens": 900},
                "settings": {"max_num_batched_tokens": 2048},
            },
            OPEN,
            id="prompts that fit one chunk",
        ),
        pytest.param(
            {
                "workload": {"kind": "offline", "isl_tokens": 100000},
                "settings": {"max_num_batched_tokens": 16384},
            },
            OPEN,
            id="chunks that fill the card, however many",
        ),
        pytest.param(
            {
                "workload": {"kind": "online", "isl_tokens": 20000},
                "settings": {"max_num_batched_tokens": 1024},
            },
            CLEAR,
            id="people read: small chunks are a choice",
        ),
        pytest.param(
            {
                "workload": {"isl_tokens": 9000},
                "comparisons": arms(
                    {
                        "settings": {"enable_chunked_prefill": True},
                        "signals": {"total_job_s": 900},
                    },
                    {
                        "settings": {"enable_chunked_prefill": False},
                        "signals": {"total_job_s": 600},
                    },
                ),
            },
            FINDING,
            id="the job is done sooner without chunks",
        ),
        pytest.param(
            {
                "workload": {"kind": "offline"},
                "comparisons": arms(
                    {
                        "settings": {"max_num_batched_tokens": 512},
                        "signals": {"total_tokens_per_s": 5000},
                    },
                    {
                        "settings": {"max_num_batched_tokens": 16384},
                        "signals": {"total_tokens_per_s": 9000},
                    },
                ),
            },
            FINDING,
            id="a larger budget was faster",
        ),
        pytest.param(
            {
                "workload": {"kind": "offline"},
                "comparisons": arms(
                    {
                        "settings": {"max_num_batched_tokens": 512},
                        "signals": {"total_tokens_per_s": 9000},
                    },
                    {
                        "settings": {"max_num_batched_tokens": 16384},
                        "signals": {"total_tokens_per_s": 9050},
                    },
                ),
            },
            OPEN,
            id="a larger budget made no difference",
        ),
    ],
)
def test_chunks_of_a_job(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("BAT002", facts).outcome == outcome


def test_an_arm_at_its_cap_is_evidence_unless_another_arm_is_the_present_one() -> None:
    """Points of a load that say what ran and what waited."""
    sweep: list[dict[str, Any]] = [
        {
            "workload": {"concurrency": many},
            "signals": {"requests_running": runs, "requests_waiting": waits},
        }
        for many, runs, waits in ((8, 8, 0), (32, 16, 16))
    ]
    facts = {"settings": {"max_num_seqs": 16}, "comparisons": arms(*sweep)}
    assert opinion("BAT001", facts).outcome == FINDING
    sweep[0]["current"] = True
    assert opinion("BAT001", facts | {"comparisons": arms(*sweep)}).outcome != FINDING
