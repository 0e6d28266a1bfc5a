"""Service rates: what is learned of one replica, and what a fleet says about the others."""

from __future__ import annotations

import pytest

from mileage.policy.service_rate import FleetRates, ServiceRate


def test_what_a_lone_request_gets_is_followed_both_ways() -> None:
    rate = ServiceRate()
    rate.sample(1.0, 50.0, queueing=False)
    assert rate.speed == 50.0
    rate.sample(1.0, 30.0, queueing=False)
    assert rate.speed == pytest.approx(50.0 - 0.3 * 20.0)
    rate.sample(1.0, 60.0, queueing=False)
    assert rate.speed == pytest.approx(44.0 + 0.3 * 16.0)


def test_company_that_slows_a_request_down_hardly_lowers_its_speed_alone() -> None:
    rate = ServiceRate()
    rate.sample(1.0, 50.0, queueing=False)
    rate.sample(10.0, 30.0, queueing=False)
    assert rate.speed == pytest.approx(49.8)


def test_little_throughput_at_little_demand_does_not_lower_the_rate() -> None:
    rate = ServiceRate()
    rate.sample(10.0, 50.0, queueing=False)
    rate.sample(1.0, 50.0, queueing=False)
    assert (rate.rate, rate.saturated) == (500.0, False)
    rate.sample(20.0, 50.0, queueing=False)
    assert rate.rate == pytest.approx(500.0 + 0.3 * 500.0)


@pytest.mark.parametrize(
    ("in_flight", "speed", "queueing", "saturated"),
    [
        pytest.param(20.0, 24.0, False, True, id="less than half the speed, in company: full"),
        pytest.param(20.0, 26.0, False, False, id="more than half the speed: room is left"),
        pytest.param(1.5, 10.0, False, False, id="slow though alone: a slower engine, not full"),
        pytest.param(4.0, 50.0, True, True, id="the engine says that requests wait: full"),
    ],
)
def test_saturation(in_flight: float, speed: float, queueing: bool, saturated: bool) -> None:
    rate = ServiceRate()
    rate.sample(1.0, 50.0, queueing=False)
    rate.sample(in_flight, speed, queueing=queueing)
    assert rate.saturated is saturated


def test_throughput_of_a_full_replica_is_its_rate_also_when_it_falls() -> None:
    rate = ServiceRate()
    rate.sample(10.0, 50.0, queueing=False)
    rate.sample(20.0, 20.0, queueing=False)
    assert rate.rate == pytest.approx(500.0 - 0.3 * 100.0)


@pytest.mark.parametrize(
    ("in_flight", "speed"),
    [pytest.param(0.0, 50.0, id="nobody there"), pytest.param(2.0, 0.0, id="nothing done")],
)
def test_a_sample_of_nothing_teaches_nothing(in_flight: float, speed: float) -> None:
    rate = ServiceRate()
    rate.sample(in_flight, speed, queueing=True)
    assert (rate.speed, rate.rate, rate.saturated) == (None, None, False)


def test_without_any_figures_all_members_count_the_same() -> None:
    rates = FleetRates()
    one, other = rates.join(), rates.join()
    assert one.s_per_token == other.s_per_token > 0
    assert one.free_s == other.free_s > 0


def test_an_unknown_member_is_taken_for_the_mean_of_the_others() -> None:
    rates = FleetRates()
    slow, fast, unknown = rates.join(), rates.join(), rates.join()
    slow.sample(1.0, 20.0, queueing=False)
    fast.sample(1.0, 60.0, queueing=False)
    rates.refresh()
    assert 1 / slow.s_per_token == pytest.approx(8 * 20.0)
    assert 1 / unknown.s_per_token == pytest.approx(8 * 40.0)
    assert 1 / fast.s_per_token == pytest.approx(8 * 60.0)


def test_a_replica_asked_for_little_is_not_taken_for_weak() -> None:
    rates = FleetRates()
    busy, idle = rates.join(), rates.join()
    busy.sample(30.0, 50.0, queueing=False)
    idle.sample(1.0, 50.0, queueing=False)
    rates.refresh()
    assert idle.s_per_token == busy.s_per_token == pytest.approx(1 / 1500.0)


def test_what_a_full_replica_showed_goes_for_those_that_were_never_full() -> None:
    rates = FleetRates()
    full, other = rates.join(), rates.join()
    full.sample(1.0, 100.0, queueing=False)
    for _ in range(40):
        full.sample(10.0, 20.0, queueing=True)
    other.sample(1.0, 50.0, queueing=False)
    rates.refresh()
    assert full.saturated
    assert full.rate is not None
    assert full.speed is not None
    assert full.rate == pytest.approx(200.0, rel=0.01)
    parallel = full.rate / full.speed
    assert 1 / other.s_per_token == pytest.approx(parallel * 50.0)


def test_the_engines_own_bound_limits_what_is_assumed() -> None:
    rates = FleetRates()
    member = rates.join()
    member.sample(1.0, 50.0, queueing=False)
    member.running_max = 2
    rates.refresh()
    assert 1 / member.s_per_token == pytest.approx(2 * 50.0)


def test_one_request_fits_into_what_keeps_nobody_waiting() -> None:
    # A server of one request at a time: any work in flight keeps the next one waiting.
    rates = FleetRates()
    member = rates.join()
    member.sample(1.0, 50.0, queueing=False)
    member.running_max = 1
    rates.refresh()
    assert member.free_s == 0.0
    # Of eight side by side, the time that seven take is free.
    member.running_max = 8
    rates.refresh()
    assert member.free_s / member.s_per_token == pytest.approx(7 * rates.work_tokens)


def test_a_member_that_left_counts_no_longer() -> None:
    rates = FleetRates()
    gone, left = rates.join(), rates.join()
    gone.sample(1.0, 500.0, queueing=False)
    rates.refresh()
    rates.leave(gone)
    assert 1 / left.s_per_token == pytest.approx(8 * 50.0)


def test_what_is_forgotten_is_assumed_again() -> None:
    rates = FleetRates()
    member = rates.join()
    before = member.s_per_token
    member.sample(9.0, 10.0, queueing=True)
    rates.refresh()
    member.forget()
    rates.refresh()
    assert member.s_per_token == before
