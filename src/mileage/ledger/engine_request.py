"""EngineRequest: what an engine itself says of a request that it has ended, and its record."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import astuple

from mileage.ledger.step_record import STEP_LENGTH

__all__ = ["EngineRequest", "lost_requests_record", "request_record"]

_encode: Final = msgspec.msgpack.Encoder().encode


class EngineRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One sequence of a request: a choice of several, or a prompt of a batch, has one of its own.

    Times are seconds on the engine's own clock, None where it did not tell them. Where
    `lost_requests` is not 0, it is no request, but so many that could not be told.
    """

    replica: str
    ended_at_utc_ns: int
    request_id: int
    """The gateway's."""
    queue_s: float | None = None
    """From its arrival in the scheduler to the first step that it had a part in."""
    prefill_s: float | None = None
    """From then to its first token."""
    decode_s: float | None = None
    """From its first token to its last."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of its prompt: those out of the prefix cache."""
    output_tokens: int = 0
    preemptions: int = 0
    lost_requests: int = 0


def request_record(request: EngineRequest) -> bytes:
    """As it is in a file: four bytes with the length, and a MessagePack."""
    payload = _encode(astuple(request))
    return STEP_LENGTH.pack(len(payload)) + payload


def lost_requests_record(
    replica: str, began_at_utc_ns: int, ended_at_utc_ns: int, requests: int
) -> bytes:
    """Says that so many requests, which ended in that time, are not in the file."""
    return request_record(EngineRequest(replica, ended_at_utc_ns, 0, lost_requests=requests))
