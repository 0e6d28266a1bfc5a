"""ReplicaLoad: our own work, what views add to it, what finished requests and counters teach."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mileage.core.replica import ReplicaView
from mileage.policy.load import ReplicaLoad, work_of
from mileage.policy.service_rate import FleetRates

MAX_AGE_S = 10.0


def new_load() -> tuple[ReplicaLoad, FleetRates]:
    rates = FleetRates()
    return ReplicaLoad(1, rates, MAX_AGE_S), rates


def view(observed_s: float, **figures: Any) -> ReplicaView:
    return ReplicaView(replica="a", observed_s=observed_s, **figures)


def run(load: ReplicaLoad, *, side_by_side: int, each_s: float, until_s: float) -> None:
    """Requests of 100 output tokens, always `side_by_side` of them, each taking `each_s`."""
    now_s = 0.0
    work = work_of(0, 100)
    while now_s < until_s:
        for _ in range(side_by_side):
            load.started(work, now_s)
        now_s += each_s
        for _ in range(side_by_side):
            load.finished(work, 0, 100, now_s - each_s, now_s)


def test_work_counts_prompt_tokens_at_a_fifth_and_a_step_for_every_request() -> None:
    assert work_of(0, 0) == 1.0
    assert work_of(1000, 50) == 251.0


def test_work_in_flight_is_that_of_what_was_sent_and_has_not_ended() -> None:
    load, _ = new_load()
    load.started(100.0, 1.0)
    load.started(0.1, 2.0)
    assert (load.in_flight, load.work) == (2, 100.1)
    s_per_token = load.done_s(0.0, 2.0) / 100.1
    assert load.done_s(50.0, 2.0) == pytest.approx(150.1 * s_per_token)
    load.ended(100.0, 3.0)
    load.ended(0.1, 3.0)
    assert (load.in_flight, load.work, load.done_s(0.0, 3.0)) == (0, 0.0, 0.0)


def test_nothing_waits_while_there_is_room_and_then_for_each_token_too_many() -> None:
    load, _ = new_load()
    run(load, side_by_side=1, each_s=2.0, until_s=60.0)
    for _ in range(7):
        load.started(101.0, 100.0)
    assert load.wait_s(100.0) == pytest.approx(0.0, abs=0.01)
    for _ in range(8):
        load.started(101.0, 100.0)
    assert load.wait_s(100.0) == pytest.approx(2.0, rel=0.02)  # another eight: one answer's time


def test_finished_requests_teach_speed_and_rate() -> None:
    load, rates = new_load()
    run(load, side_by_side=1, each_s=2.0, until_s=60.0)
    assert rates.speed == pytest.approx(50.5)
    assert rates.parallel == 8.0
    run(load, side_by_side=20, each_s=2.0, until_s=60.0)
    assert rates.parallel == pytest.approx(20.0, rel=0.05)
    assert load.done_s(0.0, 60.0) == 0.0


def test_a_few_requests_or_a_short_while_teach_nothing_yet() -> None:
    load, rates = new_load()
    run(load, side_by_side=1, each_s=2.0, until_s=30.0)
    assert rates.speed == 50.0  # assumed: 15 requests are too few
    run(load, side_by_side=1, each_s=2.0, until_s=2.0)
    assert rates.speed == 50.5


def test_what_ends_otherwise_teaches_nothing() -> None:
    load, rates = new_load()
    for i in range(100):
        load.started(101.0, i)
        load.ended(101.0, i + 0.001)
    assert (rates.speed, rates.work_tokens) == (50.0, 200.0)


def test_time_without_requests_does_not_count() -> None:
    load, rates = new_load()
    now_s = 0.0
    for _ in range(32):
        load.started(101.0, now_s)
        load.finished(101.0, 0, 100, now_s, now_s + 2.0)
        now_s += 100.0
    assert rates.speed == pytest.approx(50.5)
    assert rates.parallel == 8.0


def test_requests_that_take_no_time_teach_nothing() -> None:
    load, rates = new_load()
    for i in range(100):
        load.started(101.0, i)
        load.finished(101.0, 0, 100, i, i)
    assert rates.speed == 50.0


def test_short_answers_to_long_prompts_leave_the_speed_where_it_is() -> None:
    load, rates = new_load()
    run(load, side_by_side=1, each_s=2.0, until_s=64.0)
    for i in range(320):
        # 4,000 prompt tokens at 2,500/s and two output tokens at 50/s
        load.started(work_of(4000, 2), 100.0 + 2 * i)
        load.finished(work_of(4000, 2), 4000, 2, 100.0 + 2 * i, 101.64 + 2 * i)
    assert rates.speed == pytest.approx(50.0, rel=0.02)
    assert rates.work_per_token == pytest.approx(803 / 83, rel=0.02)


@pytest.mark.parametrize(
    ("running", "waiting", "own", "others"),
    [
        pytest.param(5, 3, 2, 6, id="what is not ours is others'"),
        pytest.param(1, 0, 2, 0, id="never less than nobody"),
        pytest.param(5, None, 2, 3, id="no figure for the queue"),
        pytest.param(None, None, 2, 0, id="no figures at all"),
    ],
)
def test_a_view_tells_of_others_work(
    running: int | None, waiting: int | None, own: int, others: int
) -> None:
    load, _ = new_load()
    for _ in range(own):
        load.started(200.0, 0.0)
    load.observed(view(1.0, running=running, waiting=waiting), 1.0)
    s_per_token = 1 / 400.0
    assert load.done_s(0.0, 1.0) == pytest.approx((own + others) * 200.0 * s_per_token)


def test_a_view_counts_until_it_is_too_old() -> None:
    load, _ = new_load()
    load.observed(view(1.0, running=8, waiting=8, kv_cache_usage_ratio=0.99), 1.5)
    assert load.done_s(0.0, 11.0) > 0
    assert load.hot
    assert load.done_s(0.0, 11.001) == 0.0
    assert not load.hot


def test_a_view_that_comes_late_is_ignored() -> None:
    load, _ = new_load()
    load.observed(view(2.0, running=8), 2.0)
    before = load.done_s(0.0, 2.0)
    load.observed(view(1.0, running=80), 2.1)
    load.observed(view(2.0, running=80), 2.2)
    assert load.done_s(0.0, 2.2) == before


@pytest.mark.parametrize(
    ("first", "second", "hot"),
    [
        pytest.param({}, {"kv_cache_usage_ratio": 0.95}, True, id="KV cache full"),
        pytest.param({}, {"kv_cache_usage_ratio": 0.94}, False, id="KV cache nearly full"),
        pytest.param({"preemptions_total": 3}, {"preemptions_total": 4}, True, id="preempts"),
        pytest.param(
            {"preemptions_total": 3}, {"preemptions_total": 3}, False, id="preempted before"
        ),
        pytest.param({}, {"preemptions_total": 3}, False, id="no earlier count to compare"),
        pytest.param({"preemptions_total": 9}, {"preemptions_total": 4}, False, id="restarted"),
        pytest.param(
            {"preemptions_total": 3}, {"preemptions_total": math.nan}, False, id="no number"
        ),
    ],
)
def test_hot(first: dict[str, float], second: dict[str, float], hot: bool) -> None:
    load, _ = new_load()
    load.observed(view(1.0, **first), 1.0)
    load.observed(view(3.0, **second), 3.0)
    assert load.hot is hot


def test_preemptions_of_long_ago_do_not_make_it_hot() -> None:
    load, _ = new_load()
    load.observed(view(1.0, preemptions_total=3), 1.0)
    load.observed(view(12.0, preemptions_total=4), 12.0)
    assert not load.hot


def test_the_engines_counters_teach_where_our_requests_do_not() -> None:
    load, rates = new_load()
    totals = {"prompt_tokens_total": 10_000.0, "output_tokens_total": 5_000.0}
    load.observed(view(1.0, running=4, waiting=0, **totals), 1.0)
    totals = {"prompt_tokens_total": 12_000.0, "output_tokens_total": 5_760.0}
    load.observed(view(5.0, running=4, waiting=0, **totals), 5.0)
    assert rates.speed == pytest.approx((0.02 * 2000 + 760) / 4 / 4)


@pytest.mark.parametrize(
    ("first", "second", "apart_s"),
    [
        pytest.param((9000.0, 4), (100.0, 4), 2.0, id="the engine restarted"),
        pytest.param((None, 4), (900.0, 4), 2.0, id="no earlier figure"),
        pytest.param((100.0, None), (900.0, 4), 2.0, id="nobody knows how many were running"),
        pytest.param((100.0, 0), (900.0, 1), 2.0, id="it stood idle in between"),
        pytest.param((100.0, 4), (900.0, 4), 0.1, id="the views are too close"),
        pytest.param((100.0, 4), (900.0, 4), 11.0, id="the views are too far apart"),
    ],
)
def test_counters_that_tell_nothing(
    first: tuple[float | None, int | None], second: tuple[float, int], apart_s: float
) -> None:
    load, rates = new_load()
    for at_s, (tokens, running) in ((1.0, first), (1.0 + apart_s, second)):
        load.observed(
            view(at_s, running=running, prompt_tokens_total=tokens, output_tokens_total=tokens),
            at_s,
        )
    assert rates.speed == 50.0


def test_our_own_requests_go_before_the_engines_counters() -> None:
    load, rates = new_load()
    run(load, side_by_side=1, each_s=2.0, until_s=60.0)
    for at_s, tokens in ((60.0, 0.0), (62.0, 8000.0)):
        load.observed(
            view(at_s, running=4, prompt_tokens_total=0.0, output_tokens_total=tokens), at_s
        )
    assert rates.speed == pytest.approx(50.5)


def test_waiting_requests_say_that_throughput_is_capacity() -> None:
    load, rates = new_load()
    run(load, side_by_side=4, each_s=2.0, until_s=60.0)
    load.observed(view(60.0, running=4, waiting=1), 60.0)
    run(load, side_by_side=4, each_s=2.0, until_s=60.0)
    assert rates.parallel == 8.0  # one request that waits for the next step is no queue
    load.observed(view(62.0, running=4, waiting=3), 62.0)
    run(load, side_by_side=4, each_s=2.0, until_s=60.0)
    assert rates.parallel < 8.0


def test_the_engines_bound_on_running_requests_is_room_at_most() -> None:
    load, _ = new_load()
    load.started(400.0, 0.0)
    assert load.wait_s(0.0) == 0.0
    load.observed(view(1.0, running=1, running_max=1), 1.0)
    assert load.wait_s(1.0) == pytest.approx(400.0 / 50.0)


def test_what_is_expected_of_requests_is_measured_as_it_is_in_flight() -> None:
    # Long answers stay long, so most requests in flight are such; of each 300 was expected.
    load, rates = new_load()
    for i in range(32):
        output_tokens = 1000 if i % 2 else 10
        load.started(300.0, 100.0 * i)
        load.finished(300.0, 0, output_tokens, 100.0 * i, 100.0 * i + output_tokens / 50)
    assert rates.work_tokens == pytest.approx(300.0)


def test_after_a_restart_nothing_learned_or_seen_holds() -> None:
    load, rates = new_load()
    run(load, side_by_side=1, each_s=0.2, until_s=60.0)
    load.started(101.0, 70.0)
    load.observed(view(70.0, running=9, kv_cache_usage_ratio=1.0), 70.0)
    load.restarted()
    assert (rates.speed, load.hot) == (50.0, False)
    assert (load.in_flight, load.work) == (1, 101.0)
    load.observed(view(69.0, running=1), 71.0)  # its clock may have been another
    assert load.done_s(0.0, 71.0) > 0


def test_in_another_fleet_it_starts_afresh() -> None:
    load, rates = new_load()
    run(load, side_by_side=1, each_s=0.2, until_s=60.0)
    other = FleetRates()
    load.join(other)
    assert (rates.speed, other.speed) == (50.0, 50.0)
    run(load, side_by_side=1, each_s=1.0, until_s=60.0)
    assert rates.speed == 50.0
    assert other.speed == pytest.approx(101.0)


def test_a_cache_that_was_emptied_is_not_taken_for_full() -> None:
    replica, _ = new_load()
    replica.observed(view(1.0, kv_tokens_max=1000), 1.0)
    assert replica.cached_tokens_max == 1000
    full = {"kv_tokens_max": 1000, "kv_stored_tokens": 800}
    replica.observed(view(2.0, **full, kv_cleared_total=0), 2.0)
    assert replica.cached_tokens_max == 800
    replica.cached.sent((1, 2, 3))
    replica.observed(view(3.0, **full, kv_cleared_total=0), 3.0)
    assert replica.cached.match((1, 2, 3)) == 3
    replica.observed(view(4.0, **full, kv_cleared_total=1), 4.0)
    assert replica.cached.match((1, 2, 3)) == 0
