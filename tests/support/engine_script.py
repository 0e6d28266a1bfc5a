"""What a scripted engine is told to do with a request, and what it received."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["Behaviour", "Fault", "Received"]

Fault: TypeAlias = Literal["close", "reset", "hang", "malformed", "half_event", "kept_alive"]
"""close: the connection ends in order; reset: it is reset; hang: nothing more comes; malformed:
bytes that are no HTTP; half_event: the first half of an event, then close; kept_alive: a connection
that has served a request is closed when the next one comes, and any other serves."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How one request is answered. `fault_at`: tokens before the fault; None: before the head."""

    tokens: int = 5
    token_bytes: int = 0
    echo: bool = False
    """Every token carries the last message's text."""
    first_token_s: float = 0.0
    token_s: float = 0.0
    end_s: float = 0.0
    """Between a stream's last event and the end of the answer."""
    status: int = 200
    message: str = "as the test said"
    bad_input: str | None = None
    """What cannot be embedded: a call with it among its inputs is answered 400."""
    headers: tuple[str, ...] = ()
    fault: Fault | None = None
    fault_at: int | None = None
    hold_at: int | None = None
    """Tokens (0: none, and not the head) before waiting for `release`; then comes the fault."""
    framing: Literal["length", "close"] = "length"
    """close: no length and no chunks; the answer ends with the connection."""
    keep_alive: bool = True
    """False: closed after the answer, without a word."""


class Received(msgspec.Struct, frozen=True):
    """A request as it came; header names are lower case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The only value of a header; None without it. Twice is the sender's mistake."""
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, f"{name} was sent {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def json(self) -> Any:
        """The decoded body."""
        return msgspec.json.decode(self.body)
