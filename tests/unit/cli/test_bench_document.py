"""The document of mileage bench: its contract, what is null in it, and how its figures are made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mileage.cli.bench_document import encoded, errors_of
from mileage.core.slo import Slo
from mileage.measure.server_use import ServerUse
from mileage.scrape.engine_check import MeanCheck
from tests.support.bench_runs import (
    LIMITED_USE,
    SEEN_USE,
    bench_run,
    document_of,
    failed,
    load_run,
    stream,
    streams,
)
from tests.support.call_records import answer

QUANTILES = ("p50", "p90", "p95", "p99", "p999", "max")
LATENCIES = ("ttft_s", "itl_s", "tpot_s", "e2e_s")


def printed(document: dict[str, Any]) -> dict[str, Any]:
    """What a program reads that gets the line."""
    line = encoded(document)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_it_keeps_its_contract() -> None:
    run = bench_run(load_run(streams()), slo=Slo(ttft_s=0.0505), use=SEEN_USE)
    document = printed(document_of(run))
    assert (document["requests"], document["requests_ok"]) == (100, 100)
    assert document["requests_failed"] == {}
    # By the nearest rank, of 1 ms to 100 ms.
    ttft = [0.05, 0.09, 0.095, 0.099, 0.1, 0.1]
    for name, values in (("ttft_s", ttft), ("e2e_s", [value + 0.02 for value in ttft])):
        assert [document[name][quantile] for quantile in QUANTILES] == pytest.approx(values)
    for name in ("itl_s", "tpot_s"):
        assert [document[name][q] for q in QUANTILES] == pytest.approx([0.01] * 6)
    assert document["output_tokens_per_s"] == pytest.approx(30.0)
    assert document["goodput_rps"] == pytest.approx(5.0)
    assert document["utilisation_ratio"] == 0.6
    assert document["memory_bytes"] == 2**30
    generator = document["generator"]
    assert generator["lag_p99_s"] == 0.001
    assert generator["cpu_ratio"] == 0.2
    assert generator["limited"] is False


def test_a_generator_at_its_limit_is_told_with_its_reason() -> None:
    document = printed(document_of(bench_run(load_run(streams(), generator=LIMITED_USE))))
    assert document["generator"]["limited"] is True
    assert document["generator"]["reason"] == "it was late"
    assert document["generator"]["lag_p99_s"] == 0.3
    # What it saw is told all the same.
    assert document["requests_ok"] == 100


def test_what_nobody_saw_is_null_and_never_0() -> None:
    records = [failed(second, "connect", "connection refused") for second in range(5)]
    document = printed(document_of(bench_run(load_run(records))))
    for name in LATENCIES:
        assert {document[name][quantile] for quantile in QUANTILES} == {None}
        assert document[name]["count"] == 0
    for name in (
        *("output_tokens_per_s", "prompt_tokens_per_s", "goodput_rps", "slo_attainment_ratio"),
        *("utilisation_ratio", "memory_bytes", "energy_j", "energy_j_per_output_token"),
        *("usd_per_hour", "usd_per_mtok", "tokens_per_event", "server", "error"),
    ):
        assert name in document
        assert document[name] is None, name
    assert document["prompt_tokens"] == {
        "planned": None,
        "counted": None,
        "ratio": None,
        "requests": 0,
    }
    assert document["requests_failed"] == {"connect": 5}
    assert document["requests_per_s"] == 0.0


def test_a_server_that_was_looked_at_in_vain_says_why() -> None:
    use = ServerUse(missing={"utilisation_ratio": "no GPU"})
    document = printed(document_of(bench_run(load_run(streams()), use=use)))
    assert document["utilisation_ratio"] is None
    assert document["server"]["missing"] == {"utilisation_ratio": "no GPU"}


def test_goodput_needs_a_target_and_zero_is_one_that_nobody_met() -> None:
    load = load_run(streams())
    assert document_of(bench_run(load))["goodput_rps"] is None
    missed = document_of(bench_run(load, slo=Slo(ttft_s=0.0005)))
    assert (missed["goodput_rps"], missed["slo_attainment_ratio"]) == (0.0, 0.0)
    assert missed["targets"] == {"ttft_s": 0.0005, "itl_s": None}


def test_energy_and_money_are_for_the_tokens_of_the_window() -> None:
    run = bench_run(load_run(streams()), use=SEEN_USE, usd_per_gpu_hour=3.0, gpus=4)
    document = document_of(run)
    assert document["energy_j_per_output_token"] == pytest.approx(900.0 / 300)
    assert document["usd_per_hour"] == 12.0
    # 12 USD an hour, at 30 tokens a second.
    assert document["usd_per_mtok"] == pytest.approx(12.0 / (30.0 * 3600) * 1e6)


def test_a_price_without_tokens_costs_by_the_hour_alone() -> None:
    run = bench_run(load_run([answer(1.0, 1.2)]), usd_per_gpu_hour=3.0)
    document = document_of(run)
    assert (document["usd_per_hour"], document["usd_per_mtok"]) == (3.0, None)


def test_the_warm_up_is_counted_and_in_no_figure() -> None:
    slow = [stream(second / 4, ttft_s=5.0, phase="warmup") for second in range(8)]
    rest = [stream(2.0 + second / 4) for second in range(8)]
    document = document_of(bench_run(load_run([*slow, *rest], start_s=2.0)))
    assert document["window"]["warmup_requests"] == 8
    assert document["requests"] == 8
    assert document["ttft_s"]["max"] == pytest.approx(0.1)
    assert sum(document["series"]["arrivals"]) == 16
    window = document["window"]
    assert (window["start_s"], window["end_s"], window["elapsed_s"]) == (2.0, 10.0, 10.5)


def test_a_run_without_a_window_tells_of_all_that_was_sent() -> None:
    run = bench_run(
        load_run([failed(0.0, "connect", "connection refused")], end_s=0.0), error="it is down"
    )
    document = printed(document_of(run))
    assert document["error"] == "it is down"
    assert document["requests_failed"] == {"connect": 1}
    assert document["steady_state"] is None
    assert document["groups"] == {}


def test_a_plan_that_broke_off_is_an_error_of_the_run() -> None:
    document = document_of(bench_run(load_run(streams(), plan_error="trace.jsonl:7: broken")))
    assert document["error"] == "trace.jsonl:7: broken"


def test_prompts_are_compared_where_both_lengths_are_known() -> None:
    records = [
        stream(0.0, planned_prompt_tokens=100, prompt_tokens=110),
        stream(1.0, planned_prompt_tokens=100, prompt_tokens=130),
        stream(2.0, planned_prompt_tokens=100),
        stream(3.0, prompt_tokens=7),
    ]
    told = document_of(bench_run(load_run(records)))["prompt_tokens"]
    assert told == {"planned": 200, "counted": 240, "ratio": 1.2, "requests": 2}


def test_the_engines_means_are_told_with_what_they_say() -> None:
    check = MeanCheck(
        engine_mean=0.1, engine_count=10, family="vllm:e2e", seen_mean=0.12, seen_count=10
    )
    run = bench_run(load_run(streams()), engine_means={"e2e_s": check})
    told = document_of(run)["engine_means"]["e2e_s"]
    assert told["ratio"] == pytest.approx(1.2)
    assert told["agrees"] is False
    assert told["family"] == "vllm:e2e"


def test_groups_are_told_where_there_are_several() -> None:
    records = [stream(0.0, tenant="a"), stream(1.0, tenant="b", ttft_s=0.3), stream(2.0)]
    groups = document_of(bench_run(load_run(records)))["groups"]
    assert set(groups) == {"tenant"}
    assert set(groups["tenant"]) == {"a", "b", "default"}
    assert groups["tenant"]["b"]["ttft_s"]["p50"] == pytest.approx(0.3)


def test_errors_are_by_kind_with_the_most_frequent_first() -> None:
    records = [
        failed(0.0, "server_error", "out of order", status=500),
        *[failed(1.0, "rejected", "full", status=429)] * 3,
        failed(2.0, "cancelled"),
        stream(3.0),
    ]
    assert errors_of(records) == [
        {"class": "rejected", "status": 429, "error": "full", "requests": 3},
        {"class": "server_error", "status": 500, "error": "out of order", "requests": 1},
    ]


def test_errors_without_end_do_not_fill_the_document() -> None:
    records = [failed(0.0, "client_error", f"id {n}", status=400) for n in range(500)]
    assert len(errors_of(records)) == 20
    document = document_of(bench_run(load_run(records)))
    assert document["requests_failed"] == {"client_error": 500}
