"""Header lines that tell a client how its tenant's rates stand, as OpenAI's API names them."""

from __future__ import annotations

import math

from mileage.control.rates import TenantRates

__all__ = ["rate_lines"]


def rate_lines(rates: TenantRates | None) -> bytes:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}` of the rates that there are."""
    if rates is None:
        return b""
    return b"".join(
        b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n"
        % (name, rate.limit, name, rate.remaining, name, _duration(rate.reset_s))
        for name, rate in ((b"requests", rates.requests), (b"tokens", rates.tokens))
        if rate is not None
    )


def _duration(seconds: float) -> bytes:
    """'0s', '120ms', '8.64s', '6m0s', '1h0m5s'; rounded up."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return b"%dms" % milliseconds if milliseconds else b"0s"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".").encode() + b"s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return b"%dh%dm%ds" % (hours, minutes, rest) if hours else b"%dm%ds" % (minutes, rest)
