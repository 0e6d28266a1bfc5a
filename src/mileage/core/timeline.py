"""RequestTimeline: when one request did what, what it used and how it ended."""

from __future__ import annotations

from typing import Literal

import msgspec

from mileage.core.request import Endpoint

__all__ = ["Outcome", "RequestTimeline"]

Outcome = Literal["ok", "failed", "cancelled", "rejected", "lost"]
"""ok: the engine's answer (also a 4xx of its own) went out whole; failed: the engine or the way to
it broke; cancelled: the client left first; rejected: the gateway refused it; lost: a gateway died
with the request in flight (found at the next start)."""


class RequestTimeline(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One finished request. Self-contained: the ledger needs no other record to store it.

    `*_s` are seconds after `arrived_at_utc_ns` (receipt of the request's last byte), so they do not
    depend on any process's clock. Token counts are the engine's own; where it reported none they
    are None and `output_tokens_counted` (token events seen on the stream) is what is known.
    `status` is None only where it is not known what the client saw (lost). `token_times` is flat:
    offset in microseconds, token events at that time, offset, events, ... and is bounded: past the
    bound only the summary figures go on.
    """

    id: int
    tenant: str
    model: str
    endpoint: Endpoint
    stream: bool
    arrived_at_utc_ns: int
    outcome: Outcome
    status: int | None
    replica: str | None = None
    attempts: int = 0
    reason: str | None = None
    dispatched_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    output_tokens_counted: int | None = None
    itl_mean_s: float | None = None
    itl_p99_s: float | None = None
    itl_max_s: float | None = None
    token_times: tuple[int, ...] = ()
    trace_id: str | None = None
    merged_into: int | None = None
    """The request whose record has the tokens of the generation that this one shared: a sum over
    tokens leaves this record out. Its own counts are what its client was given."""
    merged_members: int | None = None
    """Requests that shared the generation, or the call to the engine, when this one ended, itself
    included. None: no other did."""
    gpu_ns: int | None = None
    """GPU-nanoseconds of its replica that were its share; of all requests they sum to the time in
    which GPUs were busy. None: it never ran, or another one's record has them."""
    cost_nano_usd: int | None = None
    """What its tenant was charged: by its tokens or its GPU time. None: there is no price."""
    key: str | None = None
    """Name of the API key it came with, never the key."""
    adapter: str | None = None
    """LoRA adapter that it ran with."""
    labels: str | None = None
    """`name=value` pairs, sorted, joined by commas. None: it had none."""
