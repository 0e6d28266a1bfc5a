"""Step record: a step as engines write it: four bytes with the length, and a MessagePack."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from mileage.ledger.engine_step import EngineStep

__all__ = ["STEP_BYTES_MAX", "STEP_LENGTH", "UseRow", "lost_record", "row_record", "step_record"]

UseRow: TypeAlias = tuple[int, ...]
"""The fields of StepUse in their order; those at the end that have a default may be left out."""
STEP_LENGTH: Final = struct.Struct("<I")
"""What a step begins with: the length of its MessagePack, little-endian."""
STEP_BYTES_MAX: Final = 1 << 24
"""A longer one is none."""
_encode: Final = msgspec.msgpack.Encoder().encode


def step_record(step: EngineStep) -> bytes:
    """The step as it is in a file."""
    payload = _encode(step)
    return STEP_LENGTH.pack(len(payload)) + payload


def row_record(
    replica: str, started_at_utc_ns: int, duration_ns: int, rows: Sequence[UseRow]
) -> bytes:
    """The same of a step whose uses are plain tuples: for an engine that has no time to lose."""
    payload = _encode((replica, started_at_utc_ns, duration_ns, rows))
    return STEP_LENGTH.pack(len(payload)) + payload


def lost_record(replica: str, began_at_utc_ns: int, ended_at_utc_ns: int, steps: int) -> bytes:
    """Says of a time that so many steps of it are not in the file."""
    duration_ns = max(0, ended_at_utc_ns - began_at_utc_ns)
    return step_record(EngineStep(replica, began_at_utc_ns, duration_ns, (), steps))
