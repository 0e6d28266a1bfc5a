"""Figures of one request, and the clock of its tokens against data written out event by event."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.timeline import RequestTimeline
from mileage.measure.timeline import (
    TokenClock,
    e2e_s,
    output_tokens,
    output_tokens_per_s,
    tokens_per_event,
    tpot_s,
    ttft_s,
)

STREAM = RequestTimeline(
    id=1,
    tenant="acme",
    model="llama",
    endpoint="chat",
    stream=True,
    arrived_at_utc_ns=1_700_000_000_000_000_000,
    outcome="ok",
    status=200,
    first_token_s=0.5,
    last_token_s=2.5,
    finished_s=2.6,
    output_tokens=101,
    output_tokens_counted=51,
)


def changed(**values: object) -> RequestTimeline:
    fields = {name: getattr(STREAM, name) for name in STREAM.__struct_fields__}
    return RequestTimeline(**{**fields, **values})


def test_figures_of_a_stream() -> None:
    assert ttft_s(STREAM) == 0.5
    assert tpot_s(STREAM) == pytest.approx(2.0 / 100)
    assert e2e_s(STREAM) == 2.5
    assert output_tokens_per_s(STREAM) == pytest.approx(101 / 2.5)
    assert tokens_per_event(STREAM) == pytest.approx(101 / 51)


def test_the_engines_count_goes_before_ours() -> None:
    assert output_tokens(STREAM) == 101
    assert output_tokens(changed(output_tokens=None)) == 51
    assert output_tokens(changed(output_tokens=None, output_tokens_counted=None)) is None
    assert tpot_s(changed(output_tokens=None)) == pytest.approx(2.0 / 50)


@pytest.mark.parametrize(
    "timeline",
    [
        pytest.param(changed(output_tokens=1), id="one token"),
        pytest.param(changed(output_tokens=0), id="no token"),
        pytest.param(
            changed(output_tokens=None, output_tokens_counted=None), id="an unknown number"
        ),
        pytest.param(changed(first_token_s=None), id="no first token"),
        pytest.param(changed(last_token_s=None), id="no last token"),
        pytest.param(changed(stream=False), id="no stream"),
    ],
)
def test_tpot_is_undefined_for(timeline: RequestTimeline) -> None:
    assert tpot_s(timeline) is None


def test_a_failed_request_has_a_first_token_but_no_end_to_end() -> None:
    failed = changed(outcome="failed")
    assert ttft_s(failed) == 0.5
    assert e2e_s(failed) is None
    assert output_tokens_per_s(failed) is None


def test_without_a_stream_the_end_counts_and_the_first_byte_does_not() -> None:
    whole = changed(stream=False, last_token_s=None)
    assert ttft_s(whole) is None
    assert e2e_s(whole) == 2.6
    assert output_tokens_per_s(whole) == pytest.approx(101 / 2.6)


def test_rates_need_time_and_tokens() -> None:
    assert output_tokens_per_s(changed(last_token_s=0.0)) is None
    assert output_tokens_per_s(changed(output_tokens=None, output_tokens_counted=None)) is None
    assert tokens_per_event(changed(output_tokens=None)) is None
    assert tokens_per_event(changed(output_tokens_counted=0)) is None


def test_a_clock_that_saw_nothing() -> None:
    assert TokenClock().summary() == (None, None, 0, None, None, None)
    assert TokenClock().token_times(0.0) == ()


def test_one_event_has_no_gap() -> None:
    clock = TokenClock()
    clock.add(4.0)
    assert clock.summary() == (4.0, 4.0, 1, None, None, None)


def test_events_of_one_chunk_have_gaps_of_zero() -> None:
    clock = TokenClock()
    clock.add(4.0, 128)
    assert clock.summary() == (4.0, 4.0, 128, 0.0, 0.0, 0.0)
    assert clock.token_times(3.5) == (500_000, 128)


def test_two_chunks_have_one_gap_that_the_p99_of_many_events_ignores() -> None:
    clock = TokenClock()
    clock.add(1.0, 100)
    clock.add(2.0, 28)
    summary = clock.summary()
    assert (summary.events, summary.itl_max_s) == (128, 1.0)
    assert summary.itl_mean_s == pytest.approx(1.0 / 127)
    assert summary.itl_p99_s == 0.0  # the 126th of 127 gaps, 126 of which are zero


def test_a_clock_that_goes_back_counts_as_the_same_moment() -> None:
    clock = TokenClock()
    clock.add(2.0)
    clock.add(1.0)
    clock.add(2.0)
    assert clock.summary().events == 3
    assert clock.token_times(2.0) == (0, 3)


def test_token_times_are_microseconds_after_the_origin_and_never_negative() -> None:
    clock = TokenClock()
    clock.add(10.0, 1)
    clock.add(10.0000004, 2)
    clock.add(10.0000006, 3)
    assert clock.token_times(10.0) == (0, 1, 0, 2, 1, 3)
    assert clock.token_times(11.0) == (0, 1, 0, 2, 0, 3)


def test_a_bound_of_no_points_is_refused() -> None:
    with pytest.raises(ValueError, match="runs_max"):
        TokenClock(0)


chunks = st.lists(
    st.tuples(st.floats(0.0, 5.0, allow_subnormal=False), st.integers(1, 40)),
    min_size=1,
    max_size=200,
)


def gaps_written_out(points: list[tuple[float, int]]) -> list[float]:
    times = [now_s for now_s, events in points for _ in range(events)]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def points_of(steps: list[tuple[float, int]]) -> list[tuple[float, int]]:
    times = itertools.accumulate(gap_s for gap_s, _ in steps)
    return [(now_s, events) for now_s, (_, events) in zip(times, steps, strict=True)]


@given(chunks)
def test_summary_equals_the_events_written_out(steps: list[tuple[float, int]]) -> None:
    points = points_of(steps)
    clock = TokenClock()
    for now_s, events in points:
        clock.add(now_s, events)
    gaps = gaps_written_out(points)
    summary = clock.summary()
    assert (summary.first_s, summary.last_s) == (points[0][0], points[-1][0])
    assert summary.events == sum(events for _, events in points)
    if gaps:
        assert summary.itl_mean_s == pytest.approx(np.mean(gaps), rel=1e-9, abs=1e-12)
        assert summary.itl_max_s == max(gaps)
        assert summary.itl_p99_s == np.quantile(gaps, 0.99, method="inverted_cdf")


@given(chunks, st.integers(1, 20))
def test_past_the_bound_only_the_p99_is_approximate(
    steps: list[tuple[float, int]], runs_max: int
) -> None:
    points = points_of(steps)
    clock, unbounded = TokenClock(runs_max), TokenClock()
    for now_s, events in points:
        clock.add(now_s, events)
        unbounded.add(now_s, events)
    summary, exact = clock.summary(), unbounded.summary()
    assert summary[:4] == exact[:4]
    assert summary.itl_max_s == exact.itl_max_s
    if exact.itl_p99_s is not None:
        assert summary.itl_p99_s is not None
        assert math.isclose(summary.itl_p99_s, exact.itl_p99_s, rel_tol=0.011, abs_tol=2e-9)
    kept = clock.token_times(0.0)
    assert len(kept) <= 2 * runs_max
    assert kept[: 2 * runs_max - 2] == unbounded.token_times(0.0)[: len(kept)][: 2 * runs_max - 2]


def test_memory_is_bounded_for_an_endless_stream() -> None:
    clock = TokenClock()
    for i in range(20_000):
        clock.add(i * 0.01 + (i % 7) * 0.001)
    assert len(clock.token_times(0.0)) == 2 * 4096
    assert clock.summary().events == 20_000
    assert clock.summary().itl_max_s == pytest.approx(0.011)
