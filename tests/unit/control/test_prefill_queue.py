"""What is yet to be prefilled, by deadline, as seen from outside of the engine."""

from __future__ import annotations

import pytest

from mileage.control.config import ControlConfig
from mileage.control.flight import Flight, make_flight
from mileage.control.pool import Pool
from mileage.control.prefill_queue import PrefillQueue
from mileage.control.replicas import Route
from mileage.core.request import Request
from mileage.core.slo import SloConfig

CONFIG = ControlConfig(slo=SloConfig(ttft_s=2.0, ttft_unloaded_ratio=3.0))
TOKENS_PER_S = 10_000.0


@pytest.fixture
def pool() -> Pool:
    """Of replicas that prefill 10,000 tokens per second."""
    found = Pool()
    for tokens in (256, 1000, 4000, 16_000, 64_000):
        found.speed.learn(tokens, tokens / TOKENS_PER_S)
    return found


def flight_of(pool: Pool, number: int, tokens: int, arrived_s: float) -> Flight:
    request = Request(
        id=number,
        tenant="team",
        model="m",
        endpoint="chat",
        stream=True,
        arrived_s=arrived_s,
        prompt_tokens_estimate=tokens,
    )
    route = Route()
    return make_flight(request, route, route, pool, CONFIG)


def test_a_long_prompt_has_three_times_what_it_takes_alone(pool: Pool) -> None:
    assert flight_of(pool, 1, 1000, 5.0).deadline_s == pytest.approx(7.0)
    long = flight_of(pool, 2, 40_000, 5.0)
    assert long.ttft_target_s == pytest.approx(12.0)
    assert long.deadline_s == long.expires_s == pytest.approx(17.0)


def test_a_prompt_waits_for_those_with_earlier_deadlines_only(pool: Pool) -> None:
    queue = PrefillQueue()
    long, short = flight_of(pool, 1, 40_000, 0.0), flight_of(pool, 2, 1000, 0.0)
    assert queue.add(long, 0.0) == 0.0
    assert queue.add(short, 0.0) == 0.0
    assert queue.before(1.9, 0.0) == 0.0
    assert queue.before(2.1, 0.0) == pytest.approx(100.0)
    assert queue.before(12.1, 0.0) == pytest.approx(4100.0)


def test_work_is_taken_to_be_done_in_order_as_time_passes(pool: Pool) -> None:
    queue = PrefillQueue()
    queue.add(flight_of(pool, 1, 10_000, 0.0), 0.0)
    queue.add(flight_of(pool, 2, 40_000, 0.0), 0.0)
    assert queue.before(100.0, 1.5) == pytest.approx(3500.0)
    assert queue.before(5.0, 1.5) == 0.0


def test_first_tokens_tell_how_fast_it_goes_beside_what_decodes(pool: Pool) -> None:
    queue, now_s = PrefillQueue(), 0.0
    for number in range(40):
        flight = flight_of(pool, number, 5000, now_s)
        queue.add(flight, now_s)
        now_s += 1.0  # twice what it takes alone
        queue.remove(flight, now_s)
    assert queue.pace == pytest.approx(0.5, rel=0.05)


def test_one_that_is_late_does_not_stand_before_those_that_are_not(pool: Pool) -> None:
    queue = PrefillQueue()
    queue.pace = 0.05
    late = flight_of(pool, 1, 40_000, 0.0)
    queue.add(late, 0.0)
    assert queue.before(13.0, 11.9) > 0.0
    assert queue.before(13.0, 12.1) == 0.0
    assert queue.before(25.0, 12.1) > 0.0
    queue.remove(late, 12.2)
    assert queue.before(1e9, 12.2) == 0.0


def test_what_was_never_there_is_ignored(pool: Pool) -> None:
    queue = PrefillQueue()
    queue.remove(flight_of(pool, 1, 1000, 0.0), 1.0)
    assert queue.before(1e9, 1.0) == 0.0
