"""CallRecord: what a load generator saw of one request, from its scheduled start to its end."""

from __future__ import annotations

from array import array
from typing import Literal

import msgspec

from mileage.core.request import Endpoint

__all__ = ["CallOutcome", "CallRecord", "Phase"]

Phase = Literal["warmup", "measured"]
"""warmup: scheduled before the measured window began; it counts in no figure."""

CallOutcome = Literal[
    "ok",
    "connect",
    "timeout",
    "broken",
    "cut",
    "rejected",
    "client_error",
    "server_error",
    "malformed",
    "cancelled",
    "unsent",
]
"""connect: no connection; timeout: no whole answer in time; broken: the connection broke before any
of the answer came; cut: it broke, or the stream ended without its end, after a part had come;
rejected: 429 or 503; client_error: another 4xx; server_error: another 5xx, or an error event on the
stream; malformed: not what was asked for (no event stream, no JSON, no token); cancelled: the
generator left on purpose; unsent: the run ended, or its connections were all in use, before it
could be sent. Everything but `ok` and `cancelled` is a failure."""


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request of a run. All `*_s` are seconds since the run began, on one monotonic clock.

    Missing is None: a request on a connection that was open already has no `connected_s`; one that
    was never sent has nothing below `scheduled_s`. Latencies are counted from `scheduled_s`.
    """

    index: int
    """Place in the plan, from 0; the same request of two arms has the same index."""
    phase: Phase
    outcome: CallOutcome
    scheduled_s: float
    target: int = 0
    """Which of the run's targets it was sent to; 0 for a call that would have gone to the least
    busy one, and never left."""
    arm: str = ""
    """A/B: the arm that it was assigned to; empty elsewhere."""
    block: int = 0
    """A/B: the slot of time, or the pair of slots, that it was scheduled in."""
    taken_s: float | None = None
    """When the generator took it up: `taken_s - scheduled_s` is the generator's own lag."""
    connected_s: float | None = None
    """When its connection was made, where one had to be."""
    sent_s: float | None = None
    """When the whole request had been handed to the kernel."""
    answered_s: float | None = None
    """The first byte of the answer."""
    ended_s: float | None = None
    """The last byte of the answer, or the failure."""
    token_times_s: array[float] = msgspec.field(default_factory=lambda: array("d"))
    """Moments at which token events came, increasing; empty without a stream."""
    token_events: array[int] = msgspec.field(default_factory=lambda: array("I"))
    """Token events at each of these moments."""
    endpoint: Endpoint = "chat"
    stream: bool = True
    tenant: str = "default"
    model: str | None = None
    adapter: str | None = None
    status: int | None = None
    error: str | None = None
    """What went wrong, for people; no text of prompt or answer."""
    attempts: int = 1
    planned_prompt_tokens: int | None = None
    """What the workload asked for."""
    planned_output_tokens: int | None = None
    """Tokens that were asked for; an engine that ends where it likes may give fewer."""
    prompt_tokens: int | None = None
    """The engine's own count; so are those below."""
    cached_tokens: int | None = None
    output_tokens: int | None = None
    request_id: str | None = None
    """The answer's `x-request-id`: what joins it with a gateway's ledger."""
