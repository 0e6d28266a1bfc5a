"""Circuit breaker: the life of one breaker told step by step, and its configuration."""

from __future__ import annotations

import math

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.breaker import Breaker, BreakerConfig

CONFIG = BreakerConfig(failures_max=3, open_s=1.0, open_max_s=4.0)


def opened(config: BreakerConfig = CONFIG, now_s: float = 0.0) -> Breaker:
    breaker = Breaker(config)
    for _ in range(config.failures_max):
        breaker.failed(breaker.ticket, now_s)
    assert breaker.state == "open"
    return breaker


def half_opened() -> Breaker:
    breaker = opened()
    assert breaker.tick(1.0)
    return breaker


@pytest.mark.parametrize(
    ("key", "values"),
    [
        pytest.param("breaker.failures_max", {"failures_max": 0}, id="no failure at all"),
        pytest.param("breaker.open_s", {"open_s": 0.0}, id="never open"),
        pytest.param("breaker.open_s", {"open_s": 31.0}, id="first time above the longest"),
        pytest.param("breaker.open_s", {"open_max_s": math.inf}, id="open for ever"),
        pytest.param("breaker.open_s", {"open_s": math.nan}, id="no number"),
    ],
)
def test_config_refuses(key: str, values: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        BreakerConfig(**values)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_failures_in_a_row_open_it_and_a_success_starts_the_count_again() -> None:
    breaker = Breaker(CONFIG)
    breaker.failed(breaker.ticket, 0.0)
    breaker.failed(breaker.ticket, 0.0)
    assert not breaker.succeeded(breaker.ticket)
    assert breaker.failures == 0
    assert not breaker.failed(breaker.ticket, 0.0)
    assert not breaker.failed(breaker.ticket, 0.0)
    assert breaker.failed(breaker.ticket, 7.0)
    assert (breaker.state, breaker.retry_at_s, breaker.admits) == ("open", 8.0, False)


def test_it_is_half_open_when_its_time_has_come_and_not_before() -> None:
    breaker = opened(now_s=7.0)
    assert not breaker.tick(7.999)
    assert breaker.state == "open"
    assert breaker.tick(8.0)
    assert (breaker.state, breaker.admits, breaker.retry_at_s) == ("half_open", True, math.inf)
    assert not breaker.tick(9.0)


def test_half_open_lets_one_probe_through_until_it_settles() -> None:
    breaker = half_opened()
    ticket = breaker.admit()
    assert not breaker.admits
    with pytest.raises(AssertionError, match="admits nothing"):
        breaker.admit()
    assert breaker.succeeded(ticket)
    assert (breaker.state, breaker.failures) == ("closed", 0)


def test_a_probe_that_is_cancelled_frees_its_slot_and_decides_nothing() -> None:
    breaker = half_opened()
    ticket = breaker.admit()
    assert breaker.released(ticket)
    assert (breaker.state, breaker.admits) == ("half_open", True)
    assert not breaker.released(ticket)


def test_failed_probes_double_the_time_up_to_the_longest() -> None:
    breaker = opened()
    now_s, open_for_s = 0.0, []
    for _ in range(4):
        open_for_s.append(breaker.retry_at_s - now_s)
        now_s = breaker.retry_at_s
        breaker.tick(now_s)
        assert breaker.failed(breaker.admit(), now_s)
    assert open_for_s == [1.0, 2.0, 4.0, 4.0]


def test_an_answer_that_is_complete_makes_the_time_short_again() -> None:
    breaker = half_opened()
    breaker.failed(breaker.admit(), 1.0)
    breaker.tick(3.0)
    breaker.succeeded(breaker.admit())
    for _ in range(CONFIG.failures_max):
        breaker.failed(breaker.ticket, 10.0)
    assert breaker.retry_at_s == 11.0


def test_the_probes_first_token_closes_it_on_trial() -> None:
    breaker = half_opened()
    ticket = breaker.admit()
    assert breaker.first_token(ticket)
    assert (breaker.state, breaker.admits) == ("closed", True)
    assert breaker.failures  # there is still something to heal
    assert not breaker.first_token(ticket)
    assert breaker.failed(ticket, 5.0)
    assert (breaker.state, breaker.retry_at_s) == ("open", 7.0)


def test_a_complete_answer_ends_the_trial() -> None:
    breaker = half_opened()
    ticket = breaker.admit()
    breaker.first_token(ticket)
    assert not breaker.succeeded(ticket)
    assert breaker.failures == 0
    assert not breaker.failed(ticket, 5.0)


def test_a_first_token_means_nothing_to_a_closed_breaker() -> None:
    breaker = Breaker(CONFIG)
    breaker.failed(breaker.ticket, 0.0)
    assert not breaker.first_token(breaker.ticket)
    assert breaker.failures == 1


def test_what_was_sent_before_it_opened_neither_closes_nor_opens_it() -> None:
    breaker = Breaker(CONFIG)
    old = breaker.ticket
    for _ in range(CONFIG.failures_max):
        breaker.failed(old, 0.0)
    assert not breaker.succeeded(old)
    assert not breaker.failed(old, 0.5)
    assert breaker.retry_at_s == 1.0
    breaker.tick(1.0)
    probe = breaker.admit()
    assert not breaker.failed(old, 1.5)
    assert not breaker.first_token(old)
    assert not breaker.released(old)
    assert (breaker.state, breaker.admits) == ("half_open", False)
    assert breaker.succeeded(probe)


def test_reset_forgets_all_and_voids_what_is_under_way() -> None:
    breaker = half_opened()
    probe = breaker.admit()
    assert breaker.reset()
    assert (breaker.state, breaker.failures, breaker.admits) == ("closed", 0, True)
    assert not breaker.failed(probe, 2.0)
    assert breaker.failures == 0
    assert not breaker.reset()
