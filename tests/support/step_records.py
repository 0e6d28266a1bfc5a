"""What a step's record says."""

from __future__ import annotations

from typing import Final

import msgspec

from mileage.ledger.engine_step import EngineStep

__all__ = ["decoded"]

_decode: Final = msgspec.msgpack.Decoder(EngineStep).decode


def decoded(payload: bytes) -> EngineStep:
    """The step, of a record without its length."""
    return _decode(payload)
