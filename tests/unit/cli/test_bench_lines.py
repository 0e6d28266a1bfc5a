"""What mileage bench says of a run in a line each."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.cli.bench_lines import (
    endpoint_line,
    load_line,
    requests_line,
    verdict_line,
    warnings_of,
)
from mileage.core.slo import Slo
from mileage.measure.call_record import CallRecord
from mileage.scrape.engine_check import MeanCheck
from tests.support.bench_runs import (
    LIMITED_USE,
    bench_run,
    document_of,
    failed,
    load_run,
    stream,
    streams,
)
from tests.support.call_records import answer

GOOD = document_of(bench_run(load_run(streams()), slo=Slo(ttft_s=0.0505)), steady_state=None)


def of_records(records: list[CallRecord], **changes: Any) -> dict[str, Any]:
    return document_of(bench_run(load_run(records)), **changes)


def with_conditions(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "conditions": {**GOOD["conditions"], **changes}}


@pytest.mark.parametrize(
    ("server", "line"),
    [
        pytest.param(
            {"kind": "vllm", "version": "1.2.3"},
            "http://host:8000, toy, vllm 1.2.3",
            id="a server that is known",
        ),
        pytest.param(
            {"kind": "sglang", "version": None}, "http://host:8000, toy, sglang", id="no version"
        ),
        pytest.param({"kind": "openai", "version": None}, "http://host:8000, toy", id="any server"),
        pytest.param({}, "http://host:8000, toy", id="nothing was found out"),
        pytest.param(None, "http://host:8000, toy", id="nobody asked"),
    ],
)
def test_the_endpoint_is_told_with_what_serves_it(server: Any, line: str) -> None:
    assert endpoint_line(with_conditions(server=server)) == line


@pytest.mark.parametrize(
    ("load", "line"),
    [
        pytest.param(
            {"mode": "open", "warmup_s": 0.0}, "10/s poisson, 10 s measured", id="open loop"
        ),
        pytest.param(
            {"mode": "closed", "warmup_s": 2.5},
            "10/s poisson, closed loop, 10 s measured, after 2.5 s of warm-up",
            id="closed loop with a warm-up",
        ),
    ],
)
def test_the_load_is_told_with_its_time(load: dict[str, Any], line: str) -> None:
    assert load_line(with_conditions(load=load)) == line


def test_requests_are_told_by_what_became_of_them() -> None:
    assert requests_line(GOOD) == "100 sent, 100 ok"
    records = [
        *streams(1200),
        *[failed(1.0, "cut")] * 2,
        failed(1.0, "rejected"),
        failed(1.0, "cancelled"),
    ]
    expected = "1,204 sent, 1,200 ok, 3 failed (2 cut, 1 rejected), 1 cancelled on purpose"
    assert requests_line(of_records(records)) == expected


def test_the_verdict_of_a_good_run_has_its_main_figures() -> None:
    assert verdict_line(GOOD) == (
        "100.0% answered well; goodput 5/s (50.0%); TTFT p99 99 ms; ITL p99 10 ms; "
        "30/s output tokens"
    )


@pytest.mark.parametrize(
    ("document", "verdict"),
    [
        pytest.param(
            {**GOOD, "requests_ok": 0, "error": "it is down"}, "No run: it is down", id="no run"
        ),
        pytest.param(
            {**GOOD, "error": "it fell silent"},
            "The run ended early: it fell silent",
            id="a run that was given up",
        ),
        pytest.param(
            of_records([]),
            "Nothing was measured: no request was due in the measured time",
            id="nothing was due",
        ),
        pytest.param(
            of_records([failed(1.0, "cut")]), "No request was answered well", id="all failed"
        ),
        pytest.param(
            document_of(bench_run(load_run(streams(), generator=LIMITED_USE))),
            "The load generator was the limit, not the server: it was late",
            id="the generator was the limit",
        ),
        pytest.param(
            document_of(bench_run(load_run([failed(1.0, "cut")], generator=LIMITED_USE))),
            "No request was answered well",
            id="all failed, which is told before the generator's limit",
        ),
    ],
)
def test_a_run_that_says_nothing_of_the_server_has_a_verdict_of_its_own(
    document: dict[str, Any], verdict: str
) -> None:
    assert verdict_line(document) == verdict


@pytest.mark.parametrize(
    ("document", "beginning"),
    [
        pytest.param(
            of_records([*streams(), *[failed(1.0, "cut")] * 25]),
            "80.0% answered well; TTFT p99 99 ms",
            id="failures lower the share of those answered well",
        ),
        pytest.param(
            {**GOOD, "interrupted": True},
            "Interrupted: the result up to there; goodput 5/s (50.0%)",
            id="interrupted",
        ),
        pytest.param(
            of_records([answer(1.0, 1.25)]),
            "100.0% answered well; E2E p99 250 ms",
            id="without streams the whole answer is what is told",
        ),
    ],
)
def test_the_verdict_begins_with_what_matters_most(
    document: dict[str, Any], beginning: str
) -> None:
    assert verdict_line(document).startswith(beginning)


def test_a_good_run_has_nothing_to_beware_of() -> None:
    assert warnings_of(GOOD) == []


def test_failures_are_named_and_those_past_three_kinds_are_summed() -> None:
    records = [
        *[failed(1.0, "rejected", "full")] * 3,
        *[failed(1.0, "server_error", "out of order")] * 2,
        failed(1.0, "malformed"),
        failed(1.0, "client_error", "too long"),
        failed(1.0, "client_error", "no such model"),
    ]
    assert warnings_of(of_records([*streams(), *records], steady_state=None)) == [
        "3 rejected: full",
        "2 server_error: out of order",
        "1 malformed: malformed",
        "2 more failures of 2 kinds",
    ]


def test_answers_that_had_begun_are_told_apart_from_those_that_had_not() -> None:
    late = "no whole answer 60 s after the last call was due"
    records = [*streams(), failed(0.1, "timeout", late), failed(0.2, "timeout", late, status=200)]
    assert warnings_of(of_records(records))[:2] == [
        f"1 timeout: {late}",
        f"1 timeout, the answer begun: {late}",
    ]


def test_latencies_that_nobody_waited_for_are_told_with_their_lower_bound() -> None:
    late = [answer(0.0, 8.0, outcome="timeout")] * 4
    found = warnings_of(of_records([*streams(), *late], steady_state=None))
    assert (
        "3.8% of the latencies are not known to their end: the p99 of all is at least 8 s"
        in (found[1])
    )
    one = warnings_of(of_records([*streams(), late[0]], steady_state=None))
    assert not any("latencies are not known" in line for line in one)


@pytest.mark.parametrize(
    ("document", "warning"),
    [
        pytest.param(
            of_records(streams(99)), "99 answers are few: a p99 is their slowest", id="few answers"
        ),
        pytest.param(
            {**GOOD, "steady_state": {"steady": False, "text": "not steady: its queue grew"}},
            "not steady: its queue grew",
            id="not steady",
        ),
        pytest.param(
            {**GOOD, "tokens_per_event": 1.5},
            "an event carries 1.5 tokens: ITL is between events",
            id="several tokens at once",
        ),
        pytest.param(
            {**GOOD, "prompt_tokens": {"ratio": 0.5}},
            "prompts had 50.0% of their planned tokens, by the engine's count",
            id="prompts of another length",
        ),
        pytest.param(
            with_conditions(workload={"bad_records": 2, "bad_named": ["t.jsonl:4: cut", "x"]}),
            "2 records of the trace are broken and were left out: t.jsonl:4: cut",
            id="broken lines",
        ),
        pytest.param(
            {**GOOD, "plan": {"prompts_clipped": 1200}},
            "1,200 prompts were cut: nobody sends so long ones",
            id="prompts that were cut",
        ),
        pytest.param(
            {**GOOD, "plan": {"tenants_without_key": ["a", "b"]}},
            "tenants without a key of their own: a, b",
            id="tenants without a key",
        ),
        pytest.param(
            {**GOOD, "server": {"restarted": True}},
            "the server's process ended, or another took its place, during the run",
            id="the server was another one in the end",
        ),
        pytest.param(
            document_of(bench_run(load_run([failed(1.0, "cut")], generator=LIMITED_USE))),
            "the load generator was at its limit: it was late",
            id="a generator at its limit, where the verdict is another",
        ),
    ],
)
def test_what_makes_figures_say_less_is_told(document: dict[str, Any], warning: str) -> None:
    assert warning in warnings_of(document)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({**GOOD, "tokens_per_event": 1.04}, id="hardly any event with two tokens"),
        pytest.param({**GOOD, "prompt_tokens": {"ratio": 1.09}}, id="a template's few tokens"),
        pytest.param({**GOOD, "steady_state": {"steady": None, "text": "too few"}}, id="unknown"),
        pytest.param(
            document_of(bench_run(load_run(streams(), generator=LIMITED_USE)), steady_state=None),
            id="the verdict tells of the generator's limit",
        ),
    ],
)
def test_what_is_of_no_weight_is_not_told(document: dict[str, Any]) -> None:
    assert warnings_of(document) == []


def mean_check(seen_mean: float, seen_count: int = 10) -> MeanCheck:
    return MeanCheck(
        engine_mean=0.1,
        engine_count=10,
        family="vllm:e2e",
        seen_mean=seen_mean,
        seen_count=seen_count,
    )


@pytest.mark.parametrize(
    ("check", "warnings"),
    [
        pytest.param(mean_check(0.104), [], id="within 5 %"),
        pytest.param(
            mean_check(0.2), ["e2e: mean 200 ms from here, 100 ms by the engine"], id="apart"
        ),
        pytest.param(
            mean_check(0.2, 8),
            ["e2e: mean 200 ms from here, 100 ms by the engine, of 8 and 10"],
            id="apart, and not of the same requests",
        ),
    ],
)
def test_means_that_do_not_agree_with_the_engines_are_told(
    check: MeanCheck, warnings: list[str]
) -> None:
    run = bench_run(load_run([stream(n / 20) for n in range(100)]), engine_means={"e2e_s": check})
    assert warnings_of(document_of(run, steady_state=None)) == warnings
