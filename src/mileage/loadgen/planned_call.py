"""PlannedCall: one request of a run, ready to be sent."""

from __future__ import annotations

import msgspec

from mileage.core.request import Endpoint

__all__ = ["PlannedCall"]


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What to send and when. Bodies are built before they are due, not when.

    `scheduled_s` is since the run began and never decreases from one call to the next; a closed
    loop ignores it. `path` follows the target's own prefix; `headers` are beyond host, length,
    content type and the target's authorization.
    """

    index: int
    scheduled_s: float
    path: bytes
    """Such as b'/v1/chat/completions'."""
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    endpoint: Endpoint = "chat"
    stream: bool = True
    tenant: str = "default"
    model: str | None = None
    adapter: str | None = None
    prompt_tokens: int | None = None
    """Tokens that the prompt should have."""
    output_tokens: int | None = None
    """Tokens that were asked for."""
    cancel_after_s: float | None = None
    """Seconds after it was sent at which the client leaves; None: it waits."""
    target: int | None = 0
    """Which of the run's targets; None: that with the fewest calls on their way as it is sent."""
    arm: str = ""
    block: int = 0
