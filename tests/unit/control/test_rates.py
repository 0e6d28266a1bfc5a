"""Rates and concurrency of tenants: who is admitted, and when those refused may come back."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.control.rates import GateRefusal, TenantGate
from mileage.core.errors import ConfigError
from mileage.policy.tenants import TenantLimits
from tests.support.controllers import request


def gate(**limits: Any) -> TenantGate:
    return TenantGate({"acme": TenantLimits(**limits)})


def admitted(
    made: TenantGate, count: int, now_s: float = 0.0, *, tokens: int = 1, tenant: str = "acme"
) -> int:
    """How many of `count` requests at once are admitted."""
    return sum(made.admit(request(i, tenant=tenant), tokens, now_s) is None for i in range(count))


def refusal(made: TenantGate, now_s: float = 0.0, *, tokens: int = 1) -> GateRefusal:
    said = made.admit(request(0), tokens, now_s)
    assert said is not None
    return said


def test_a_burst_may_be_a_minutes_worth() -> None:
    assert admitted(gate(requests_per_min=60), 100) == 60


@pytest.mark.parametrize(
    ("passed_s", "more"),
    [
        pytest.param(1.0, 1, id="a second brings one at 60 per minute"),
        pytest.param(10.0, 10, id="ten bring ten"),
        pytest.param(1e9, 60, id="a clock that leaps ahead fills the bucket, no more"),
        pytest.param(-1e6, 0, id="one that falls back brings nothing"),
    ],
)
def test_the_bucket_fills_with_time(passed_s: float, more: int) -> None:
    made = gate(requests_per_min=60)
    admitted(made, 60, 1e7)
    assert admitted(made, 100, 1e7 + passed_s) == more


@pytest.mark.parametrize(
    ("limits", "taken", "refused"),
    [
        pytest.param({"requests_per_min": 2}, 1, False, id="one is left"),
        pytest.param({"requests_per_min": 2}, 2, True, id="no request is left"),
        pytest.param({"tokens_per_min": 10}, 2, True, id="no token is left"),
        pytest.param({"tokens_per_min": 11}, 2, False, id="a token is left"),
        pytest.param({"concurrency_max": 1}, 1, True, id="as many as may be are there"),
        pytest.param({"weight": 2.0}, 100, False, id="no limits"),
    ],
)
def test_whether_anything_at_all_would_be_let_in(
    limits: dict[str, Any], taken: int, refused: bool
) -> None:
    made = gate(**limits)
    assert not made.refuses("acme", 0.0)
    admitted(made, taken, tokens=5)
    for _ in range(3):  # to ask takes nothing
        assert made.refuses("acme", 0.0) is refused
    assert made.refuses("acme", 61.0) is ("concurrency_max" in limits)
    assert not made.refuses("another", 0.0)


def test_a_clock_that_fell_back_goes_on_from_there() -> None:
    made = gate(requests_per_min=60)
    admitted(made, 60, 1e7)
    admitted(made, 1, 0.0)
    assert admitted(made, 100, 5.0) == 5


def test_events_told_a_little_late_bring_nothing_twice() -> None:
    made = gate(requests_per_min=60)
    admitted(made, 60, 100.0)
    for _ in range(50):
        admitted(made, 1, 99.5)
        admitted(made, 1, 100.0)
    assert admitted(made, 100, 101.0) == 1


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        pytest.param({"requests_per_min": 7}, 1, id="requests"),
        pytest.param({"tokens_per_min": 1000}, 130, id="tokens"),
        pytest.param({"requests_per_min": 0.5}, 1, id="less than one request per minute"),
        pytest.param({"tokens_per_min": 100}, 1000, id="a request larger than the bucket"),
        pytest.param({"requests_per_min": 60, "tokens_per_min": 90}, 40, id="both"),
    ],
)
def test_who_waits_as_long_as_told_is_admitted_and_not_sooner(
    limits: dict[str, Any], tokens: int
) -> None:
    made = gate(**limits)
    admitted(made, 100, 50.0, tokens=tokens)
    wait_s = refusal(made, 50.0, tokens=tokens).retry_after_s
    assert wait_s > 0
    refusal(made, 50.0 + 0.99 * wait_s, tokens=tokens)
    assert made.admit(request(0), tokens, 50.0 + wait_s) is None


def test_a_request_larger_than_the_bucket_leaves_a_debt() -> None:
    made = gate(tokens_per_min=60)
    assert made.admit(request(0), 120, 0.0) is None
    assert refusal(made, 0.0).retry_after_s == pytest.approx(61.0)


def test_tokens_are_corrected_when_the_request_ends() -> None:
    made = gate(tokens_per_min=100)
    assert made.admit(request(0), 100, 0.0) is None
    refusal(made, 0.0)
    made.ended("acme", 100, 30, 0.0)
    assert admitted(made, 1, tokens=70) == 1
    refusal(made, 0.0)


def test_tokens_that_nobody_counted_stay_taken() -> None:
    made = gate(tokens_per_min=100)
    made.admit(request(0), 60, 0.0)
    made.ended("acme", 60, None, 0.0)
    refusal(made, 0.0, tokens=41)


def test_more_tokens_than_reserved_are_a_debt() -> None:
    made = gate(tokens_per_min=60)
    made.admit(request(0), 60, 0.0)
    made.ended("acme", 60, 90, 0.0)
    assert refusal(made, 0.0).retry_after_s == pytest.approx(31.0)


def test_concurrency_is_free_again_when_a_request_ends() -> None:
    made = gate(concurrency_max=2)
    assert admitted(made, 5) == 2
    said = refusal(made)
    assert said.reason == "concurrency_limited"
    assert "2 at once" in said.detail
    made.ended("acme", 1, 1, 0.0)
    assert admitted(made, 5) == 1


def test_a_refusal_takes_nothing() -> None:
    made = gate(requests_per_min=100, tokens_per_min=10)
    refusal_count = 50 - admitted(made, 50, tokens=10)
    assert refusal_count == 49
    rates = made.rates("acme", 0.0)
    assert rates is not None
    assert rates.requests is not None
    assert rates.requests.remaining == 99


def test_the_detail_names_the_limit_with_its_figures() -> None:
    made = gate(requests_per_min=2)
    admitted(made, 2)
    assert refusal(made).detail == (
        "tenant 'acme' may use 2 requests per minute: 0 are left, this request needs 1"
    )


def test_tenants_without_limits_are_counted_and_always_admitted() -> None:
    made = TenantGate({})
    assert admitted(made, 1000, tenant="anybody") == 1000
    assert made.in_flight("anybody") == 1000
    assert made.rates("anybody", 0.0) is None


def test_limits_that_come_with_a_reload_know_what_is_in_flight() -> None:
    made = TenantGate({})
    admitted(made, 3)
    made.reconfigure({"acme": TenantLimits(concurrency_max=4)}, 0.0)
    assert admitted(made, 5) == 1


def test_a_reload_keeps_what_is_left_as_far_as_it_fits() -> None:
    made = gate(requests_per_min=100)
    admitted(made, 70)
    made.reconfigure({"acme": TenantLimits(requests_per_min=1000)}, 0.0)
    assert admitted(made, 10) == 10
    made.reconfigure({"acme": TenantLimits(requests_per_min=5)}, 0.0)
    assert admitted(made, 50) == 5
    made.reconfigure({}, 0.0)
    assert admitted(made, 500) == 500


def test_a_debt_outlives_a_reload() -> None:
    made = gate(tokens_per_min=60)
    made.admit(request(0), 120, 0.0)
    made.reconfigure({"acme": TenantLimits(tokens_per_min=120)}, 0.0)
    assert refusal(made, 0.0).retry_after_s == pytest.approx(61 / 2)


def test_a_process_that_is_one_of_several_has_a_share_of_every_limit() -> None:
    made = gate(requests_per_min=100, concurrency_max=30)
    made.share(0.25, 0.0)
    assert admitted(made, 100) == 7
    assert "30 (this worker's share: 7)" in refusal(made).detail
    for _ in range(7):
        made.ended("acme", 1, 1, 0.0)
    assert admitted(made, 7) + admitted(made, 7) == 7
    rates = made.rates("acme", 0.0)
    assert rates is not None
    assert rates.requests is not None
    assert (rates.requests.limit, rates.requests.remaining) == (100, 11)


def test_shares_that_move_to_and_fro_bring_nothing() -> None:
    made = gate(requests_per_min=100)
    made.share(0.5, 0.0)
    assert admitted(made, 40) == 40
    for _ in range(10):
        made.share(0.9, 0.0)
        made.share(0.5, 0.0)
    assert admitted(made, 100) == 10


def test_of_a_small_concurrency_every_process_may_use_one() -> None:
    made = gate(concurrency_max=2)
    made.share(0.25, 0.0)
    assert admitted(made, 5) == 1


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError, match="ratio"):
        gate().share(ratio, 0.0)


def test_rates_tell_the_limit_what_remains_and_when_it_is_whole() -> None:
    made = gate(requests_per_min=60, tokens_per_min=600)
    made.admit(request(0), 100, 0.0)
    rates = made.rates("acme", 0.0)
    assert rates is not None
    assert rates.requests is not None
    assert rates.tokens is not None
    assert (rates.requests.limit, rates.requests.remaining) == (60, 59)
    assert (rates.tokens.limit, rates.tokens.remaining) == (600, 500)
    assert rates.requests.reset_s == pytest.approx(1.0)
    assert rates.tokens.reset_s == pytest.approx(10.0)
