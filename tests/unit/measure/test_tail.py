"""Tail attribution of hand-made runs: the right stage comes first, and the parts are the whole."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from mileage.core.errors import ConfigError
from mileage.core.timeline import RequestTimeline
from mileage.measure.call_record import CallRecord
from mileage.measure.tail import attribute_tail
from mileage.measure.tail_host import Pause
from mileage.measure.tail_report import TailOptions, TailReport
from mileage.measure.tail_stage import Cause, Role
from tests.support.tail_calls import call, steady_run

GAPS = (0.02,) * 4


def pause(
    cause: Cause, role: Role, start_s: float, end_s: float, busy_s: float | None = None
) -> Pause:
    busy = end_s - start_s if busy_s is None else busy_s
    return Pause(cause=cause, role=role, start_s=start_s, end_s=end_s, busy_s=busy, pid=7)


def with_slow(*slow: CallRecord, count: int = 100) -> list[CallRecord]:
    """A steady run, with its last calls replaced."""
    return [*steady_run(count), *slow]


def first_of(report: TailReport) -> tuple[str, str | None]:
    assert report.first is not None, report.verdict
    return report.first.stage, report.first.role


def one(records: Sequence[CallRecord], pauses: Sequence[Pause] = ()) -> TailReport:
    return attribute_tail(records, TailOptions(requests_min=1), pauses=pauses)


LATE = call(500, 5.03, gaps_s=(*GAPS, 0.4, *GAPS))
"""Its fifth gap is from 5.16 to 5.56 s."""


@pytest.mark.parametrize(
    ("slow", "stage"),
    [
        pytest.param(call(500, 5.0, lag_s=0.5), "schedule", id="the generator took it up late"),
        pytest.param(call(500, 5.0, connect_s=0.5), "connect", id="its connection took long"),
        pytest.param(call(500, 5.0, ttft_s=0.6), "upstream_wait", id="as short, but waited long"),
        pytest.param(call(500, 5.0, ttft_s=0.6, prompt_tokens=9000), "prefill", id="a long prompt"),
        pytest.param(call(500, 5.0, gaps_s=(0.02,) * 90), "decode", id="a long answer"),
        pytest.param(LATE, "stall", id="its stream alone was late"),
    ],
)
def test_the_slow_stage_comes_first(slow: CallRecord, stage: str) -> None:
    assert first_of(one(with_slow(slow))) == (stage, None)


def test_an_answer_that_is_no_stream_is_one_stage() -> None:
    records = [
        call(i, i * 0.1, gaps_s=(), ttft_s=0.9 if i == 50 else 0.05, stream=False)
        for i in range(100)
    ]
    assert first_of(one(records)) == ("answer", None)


def test_a_stall_while_another_prompt_is_computed_names_its_size() -> None:
    prompt = call(501, 5.17, ttft_s=0.37, prompt_tokens=9000, gaps_s=GAPS)
    report = one(with_slow(LATE, prompt))
    assert first_of(report) == ("stall_prefill", None)
    assert any("prompt of 9000 tokens of request 501" in said for said in report.evidence)
    (worst,) = [w for w in report.waterfalls if w.index == 500]
    (held,) = [s for s in worst.slices if s.stage == "stall_prefill"]
    assert [(p.index, p.prompt_tokens) for p in held.prefills] == [(501, 9000)]
    assert held.prefills[0].overlap_s == pytest.approx(0.37, abs=1e-6)
    assert held.running == 3  # those of 5.0 and 5.1 s beside it


def test_a_prompt_whose_answer_has_no_token_is_computed_all_the_same() -> None:
    prompt = call(501, 5.17, ttft_s=0.37, prompt_tokens=9000, gaps_s=())
    silent = replace(prompt, token_times_s=array("d"), token_events=array("I"))
    assert first_of(one(with_slow(LATE, silent))) == ("stall_prefill", None)


def test_all_streams_late_at_once_is_the_engine() -> None:
    beside = [call(500 + i, 5.03 + 0.001 * i, gaps_s=(*GAPS, 0.4, *GAPS)) for i in range(3)]
    records = [r for r in steady_run() if not 4.7 < r.scheduled_s < 5.7]
    report = attribute_tail([*records, *beside], TailOptions(requests_min=3))
    assert first_of(report) == ("stall_engine", None)
    assert any("all 3 streams" in said for said in report.evidence)


def test_a_stream_late_while_others_go_on_is_late_alone() -> None:
    beside = call(501, 5.03, gaps_s=(0.02,) * 40)
    assert first_of(attribute_tail(with_slow(LATE, beside), TailOptions(requests_min=1)))[0] in (
        "stall",
        "decode",
    )
    (worst,) = [
        w for w in one(with_slow(LATE, beside, count=20)).waterfalls if w.index in (500, 501)
    ]
    assert "stall_engine" not in {s.stage for s in worst.slices}


@pytest.mark.parametrize(
    ("met", "stage", "role"),
    [
        pytest.param(
            [pause("stopped", "engine", 5.17, 5.53)], "stopped", "engine", id="engine stopped"
        ),
        pytest.param(
            [pause("gc", "gateway", 5.17, 5.555)], "gc", "gateway", id="gateway collects until then"
        ),
        pytest.param(
            [pause("gc", "gateway", 5.17, 5.4)], "stall", None, id="gateway was back long before"
        ),
        pytest.param(
            [pause("run_queue", "engine", 5.1, 5.6, 0.35)],
            "run_queue",
            "engine",
            id="without a CPU for a part of a window",
        ),
        pytest.param(
            [pause("run_queue", "engine", 5.1, 5.6, 0.35), pause("gc", "engine", 5.15, 5.56)],
            "gc",
            "engine",
            id="of two the one that goes before",
        ),
        pytest.param(
            [pause("pressure", "generator", 8.0, 9.0)], "stall", None, id="at another time"
        ),
    ],
)
def test_what_held_a_process_takes_the_stages_place(
    met: list[Pause], stage: str, role: str | None
) -> None:
    assert first_of(one(with_slow(LATE), met)) == (stage, role)


def test_the_pause_is_told_as_evidence() -> None:
    report = one(with_slow(LATE), [pause("stopped", "engine", 5.17, 5.53)])
    assert any("engine (process 7) was stopped for 0.360 s" in said for said in report.evidence)


def test_a_pause_of_the_gateway_when_the_request_came_delays_it() -> None:
    slow = call(500, 5.03, ttft_s=0.4)
    assert first_of(one(with_slow(slow), [pause("gc", "gateway", 5.02, 5.36)])) == ("gc", "gateway")


def test_pauses_that_follow_each_other_hold_until_the_last_one_ends() -> None:
    met = [pause("gc", "gateway", 5.17, 5.4), pause("event_loop", "gateway", 5.4, 5.56)]
    report = one(with_slow(LATE), met)
    assert {"gc", "event_loop"} <= {share.stage for share in report.stages}
    assert first_of(report) == ("gc", "gateway")


def test_a_pause_within_a_long_wait_that_went_on_did_not_delay_it() -> None:
    slow = call(500, 5.0, ttft_s=2.0)
    report = one(with_slow(slow), [pause("gc", "gateway", 5.5, 5.9)])
    (worst,) = [w for w in report.waterfalls if w.index == 500]
    assert "gc" not in {part.stage for part in worst.slices}


def timeline(index: int, arrived_s: float, dispatched_s: float, first_s: float) -> RequestTimeline:
    return RequestTimeline(
        id=index,
        tenant="default",
        model="m",
        endpoint="chat",
        stream=True,
        arrived_at_utc_ns=1_700_000_000_000_000_000 + round(arrived_s * 1e9),
        outcome="ok",
        status=200,
        dispatched_s=dispatched_s,
        first_token_s=first_s,
        last_token_s=first_s + 0.2,
    )


@pytest.mark.parametrize(
    ("arrived", "dispatched", "first", "stage"),
    [
        pytest.param(0.001, 0.5, 0.549, "gateway_queue", id="held in the gateway's queue"),
        pytest.param(0.001, 0.001, 0.549, "upstream_wait", id="dispatched, then waited"),
        pytest.param(0.5, 0.001, 0.05, "transit", id="on its way to the gateway"),
        pytest.param(0.001, 0.001, 0.05, "transit", id="on its way back"),
    ],
)
def test_a_gateways_record_parts_the_wait(
    arrived: float, dispatched: float, first: float, stage: str
) -> None:
    records = [
        call(i, i * 0.1, ttft_s=0.55 if i == 50 else 0.05, request_id=f"req-{i:x}")
        for i in range(100)
    ]
    timelines = {f"req-{i:x}": timeline(i, i * 0.1 + 0.0005, 0.001, 0.049) for i in range(100)}
    timelines["req-32"] = timeline(50, 5.0 + arrived, dispatched, first)
    report = attribute_tail(records, TailOptions(requests_min=1), timelines=timelines)
    assert first_of(report) == (stage, None)
    assert report.joined == report.tail_requests + report.typical_requests


def test_stages_sum_to_the_latency_and_excesses_to_the_difference() -> None:
    report = one(with_slow(LATE), [pause("run_queue", "engine", 5.1, 5.6, 0.1)])
    assert sum(s.tail_s for s in report.stages) == pytest.approx(report.tail_mean_s, abs=1e-12)
    assert sum(s.typical_s for s in report.stages) == pytest.approx(report.typical_mean_s)
    assert sum(s.excess_s for s in report.stages) == pytest.approx(
        report.tail_mean_s - report.typical_mean_s
    )
    assert sum(s.excess_ratio or 0.0 for s in report.stages) == pytest.approx(1.0)
    assert [s.excess_s for s in report.stages] == sorted(
        (s.excess_s for s in report.stages), reverse=True
    )


def test_time_to_first_token_has_no_decode_in_it() -> None:
    records = with_slow(LATE, call(501, 6.0, ttft_s=0.3))
    report = attribute_tail(records, TailOptions(latency="ttft", requests_min=1))
    assert first_of(report) == ("upstream_wait", None)
    assert report.tail_mean_s == pytest.approx(0.3)
    assert "decode" not in {share.stage for share in report.stages}


def test_without_a_tail_nothing_comes_first() -> None:
    report = one(steady_run())
    assert report.first is None
    assert report.verdict.startswith("no tail")


def test_of_few_requests_nothing_is_told() -> None:
    report = one([*steady_run(10), LATE])
    assert report.first is None
    assert report.verdict.startswith("not enough evidence")


def test_failures_are_told_apart_and_warm_up_is_no_tail() -> None:
    failed = call(600, 6.0, outcome="timeout", gaps_s=(), ttft_s=9.0)
    warm = call(601, 6.0, phase="warmup", ttft_s=9.0)
    report = one(with_slow(LATE, failed, warm))
    assert report.left_out == {"timeout": 1}
    assert report.threshold_s < 1.0
    assert report.requests == 101


def test_a_run_without_any_good_request_is_refused() -> None:
    with pytest.raises(ValueError, match="no measured request"):
        one([call(0, 0.0, outcome="server_error")])


def test_the_tail_is_the_share_asked_for_but_a_few_at_least() -> None:
    many = steady_run(2000, every_s=0.01)
    assert attribute_tail(many, TailOptions(share_ratio=0.01)).tail_requests == 20
    assert attribute_tail(many, TailOptions(share_ratio=0.001)).tail_requests == 5
    assert attribute_tail(many[:30], TailOptions(share_ratio=0.001)).tail_requests == 3


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param({"share_ratio": 0.9}, "share_ratio", id="more than half"),
        pytest.param({"requests_min": 0}, "requests_min", id="no request"),
        pytest.param({"waterfalls": -1}, "waterfalls", id="fewer than none"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        TailOptions(**options)  # type: ignore[arg-type]
