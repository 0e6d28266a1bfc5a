"""How rates are told to clients."""

from __future__ import annotations

import pytest

from mileage.control.rates import RateState, TenantRates
from mileage.gateway.rate_lines import rate_lines


def test_rates_are_told_as_openai_tells_them() -> None:
    rates = TenantRates(RateState(60, 59, 1.0), RateState(150_000, 149_984, 0.006))
    assert rate_lines(rates).decode().split("\r\n") == [
        "x-ratelimit-limit-requests: 60",
        "x-ratelimit-remaining-requests: 59",
        "x-ratelimit-reset-requests: 1s",
        "x-ratelimit-limit-tokens: 150000",
        "x-ratelimit-remaining-tokens: 149984",
        "x-ratelimit-reset-tokens: 6ms",
        "",
    ]


def test_a_rate_that_is_not_limited_is_not_told() -> None:
    assert rate_lines(None) == b""
    assert rate_lines(TenantRates(None, None)) == b""
    assert b"tokens" not in rate_lines(TenantRates(RateState(1, 1, 0.0), None))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (8.64, "8.64s"),
        (59.9999, "1m0s"),
        (360, "6m0s"),
        (3604.2, "1h0m5s"),
    ],
)
def test_durations_are_in_the_form_that_clients_parse(seconds: float, text: str) -> None:
    lines = rate_lines(TenantRates(RateState(1, 0, seconds), None))
    assert lines.endswith(f"reset-requests: {text}\r\n".encode())
