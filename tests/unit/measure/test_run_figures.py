"""RunFigures: what counts in a window, by which definition, and what failed requests do to it."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.slo import Slo
from mileage.measure.call_record import CallRecord
from mileage.measure.quantiles import quantile
from mileage.measure.run_figures import RunFigures, run_figures
from mileage.measure.run_groups import OTHER, figures_by
from mileage.measure.spread import Spread
from tests.support.call_records import answer, streamed

NO_TARGETS = Slo()


def figures(*records: CallRecord, slo: Slo = NO_TARGETS, end_s: float = 10.0) -> RunFigures:
    return run_figures(records, start_s=0.0, end_s=end_s, slo=slo)


def test_latencies_of_a_stream_are_counted_from_its_scheduled_start() -> None:
    found = figures(streamed([1.5, 1.6, 1.9], scheduled_s=1.0, taken_s=1.4, output_tokens=5))

    assert found.ttft_s.p50 == pytest.approx(0.5)
    assert found.e2e_s.max == pytest.approx(0.9)
    assert found.tpot_s.mean == pytest.approx(0.4 / 4)
    assert found.itl_s.count == 2
    assert found.itl_s.max == pytest.approx(0.3)
    assert found.tokens_per_event == pytest.approx(5 / 3)


def test_events_that_came_together_have_gaps_of_zero() -> None:
    found = figures(streamed([1.0, 2.0], [1, 9]))

    assert (found.itl_s.count, found.itl_s.p50, found.itl_s.max) == (9, 0.0, 1.0)
    assert found.itl_request_p99_s.p50 == 1.0


def test_a_whole_answer_has_an_end_and_no_tokens_seen() -> None:
    found = figures(answer(1.0, 3.0, output_tokens=7), slo=Slo(ttft_s=5.0))

    assert found.e2e_s.p50 == 2.0
    assert found.ttft_s == found.itl_s == found.tpot_s == Spread()
    assert found.goodput_rps is None
    assert found.output_tokens_per_s == 0.7


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 9)), min_size=1, max_size=30),
        min_size=1,
        max_size=6,
    )
)
def test_gaps_agree_with_gaps_written_out(streams: list[list[tuple[int, int]]]) -> None:
    records, pooled, own = [], [], []
    for stream in streams:
        moments: list[float] = []
        times: list[float] = []
        at = 0.0
        for gap, events in stream:
            at += gap / 1024.0
            times.append(at)
            moments += [at] * events
        gaps = [b - a for a, b in pairwise(moments)]
        pooled += gaps
        if gaps:
            own.append(quantile(gaps, 0.99))
        records.append(streamed(times, [events for _, events in stream]))

    found = figures(*records, end_s=1.0)

    assert found.itl_s.count == len(pooled)
    for name, q in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        assert getattr(found.itl_s, name) == quantile(pooled, q)
    assert found.itl_request_p99_s.max == max((gap for gap in own if gap is not None), default=None)
    assert found.itl_request_p99_s.count == len(own)


def test_latency_goes_by_the_schedule_and_throughput_by_what_came_inside() -> None:
    early = streamed([0.5, 1.0], scheduled_s=-1.0, phase="warmup", prompt_tokens=100)
    late = streamed([9.0, 11.0, 12.0], scheduled_s=8.0, prompt_tokens=10)
    next_one = streamed([11.0, 12.0], scheduled_s=10.0)

    found = figures(early, late, next_one)

    assert (found.requests, found.requests_ok) == (1, 1)
    assert found.e2e_s.p50 == 4.0
    assert found.output_tokens_per_s == pytest.approx(3 / 10)
    assert found.requests_per_s == pytest.approx(1 / 10)
    assert found.prompt_tokens_per_s == pytest.approx(110 / 10)


@pytest.mark.parametrize(
    ("record", "good"),
    [
        pytest.param(streamed([0.5, 0.6, 0.7]), 1, id="all targets met"),
        pytest.param(streamed([1.5, 1.6, 1.7]), 0, id="the first token was late"),
        pytest.param(streamed([0.5, 0.6, 1.7]), 0, id="one gap was long"),
        pytest.param(streamed([0.5]), 1, id="one token has no gap to miss"),
        pytest.param(streamed([0.5, 0.6], outcome="cut"), 0, id="cut off"),
        pytest.param(streamed([0.5, 0.6], outcome="cancelled"), 0, id="cancelled"),
        pytest.param(streamed([], outcome="timeout", ended_s=0.6), 0, id="never answered"),
    ],
)
def test_goodput_counts_what_met_all_targets(record: CallRecord, good: int) -> None:
    found = figures(record, slo=Slo(ttft_s=1.0, itl_s=0.5))

    assert found.goodput_rps == pytest.approx(good / 10)
    if record.outcome != "cancelled":
        assert found.slo_attainment_ratio == good
    else:
        assert found.slo_attainment_ratio is None


def test_failures_are_counted_by_class_and_kept_from_the_latencies() -> None:
    found = figures(
        streamed([0.1, 0.2]),
        streamed([], outcome="timeout", ended_s=9.0),
        streamed([0.3], outcome="cut", ended_s=5.0),
        streamed([], outcome="rejected", ended_s=0.01),
        streamed([0.4], outcome="cancelled", ended_s=0.5),
        streamed([], outcome="unsent"),
    )

    assert found.requests == 6
    assert found.requests_ok == 1
    assert found.requests_failed == {"cut": 1, "rejected": 1, "timeout": 1, "unsent": 1}
    assert found.requests_cancelled == 1
    assert found.requests_ok + found.requests_cancelled + sum(found.requests_failed.values()) == 6
    assert found.e2e_s.count == 1
    assert found.latency_censored_ratio == pytest.approx(3 / 5)


def test_what_was_given_up_bounds_the_latencies_from_below() -> None:
    """Those that timed out were the slowest: without them the quantiles would flatter."""
    quick = [streamed([0.1, 0.2]) for _ in range(97)]
    hung = [streamed([], outcome="timeout", ended_s=60.0) for _ in range(3)]
    refused = streamed([], outcome="rejected", ended_s=0.001)

    found = figures(*quick, *hung, refused)

    assert found.ttft_s.p99 == pytest.approx(0.1)
    assert found.ttft_at_least_s.p99 == 60.0
    assert found.e2e_at_least_s.p99 == 60.0
    assert found.ttft_at_least_s.count == 100


def test_a_stream_that_was_cut_bounds_its_end_and_tells_its_first_token() -> None:
    found = figures(streamed([0.3, 0.4], outcome="cut", ended_s=5.0))

    assert found.ttft_s.count == 0
    assert found.ttft_at_least_s.max == pytest.approx(0.3)
    assert found.e2e_at_least_s.max == 5.0


def test_shares_of_usage_and_cache_are_absent_where_nothing_was_told() -> None:
    silent = figures(streamed([0.1, 0.2]))
    told = figures(
        streamed([0.1, 0.2], prompt_tokens=100, cached_tokens=25, output_tokens=2),
        streamed([0.1, 0.2]),
    )

    assert (silent.cached_tokens_ratio, silent.prompt_tokens_per_s) == (None, None)
    assert silent.tokens_per_event is None
    assert silent.usage_reported_ratio == 0.0
    assert (told.cached_tokens_ratio, told.usage_reported_ratio) == (0.25, 0.5)


def test_an_empty_run_has_no_latency_and_no_share() -> None:
    found = figures(slo=Slo(ttft_s=1.0))

    assert (found.requests, found.requests_per_s, found.goodput_rps) == (0, 0.0, None)
    assert found.latency_censored_ratio is None
    assert found.output_tokens_per_s is None


def test_a_window_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        run_figures([], start_s=1.0, end_s=1.0, slo=NO_TARGETS)


def test_a_stream_longer_than_the_window_counts_with_its_part() -> None:
    times = array("d", [float(i) for i in range(-5, 15)])
    record = streamed(times, scheduled_s=-6.0, phase="warmup", output_tokens=40)

    assert figures(record).output_tokens_per_s == pytest.approx(2.0)


def test_groups_have_their_own_figures_and_the_rest_are_together() -> None:
    records = [streamed([0.1], tenant=name) for name in "aaabbcde"]
    found = figures_by(records, "tenant", start_s=0.0, end_s=10.0, slo=NO_TARGETS, groups_max=3)

    assert {name: group.requests for name, group in found.items()} == {"a": 3, "b": 2, OTHER: 3}
    adapters = figures_by(records, "adapter", start_s=0.0, end_s=10.0, slo=NO_TARGETS)
    assert {name: group.requests for name, group in adapters.items()} == {"": 8}
