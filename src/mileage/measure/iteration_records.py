"""The JSON page of trtllm-serve: one record for each iteration of its engine."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import msgspec

from mileage.measure.exposition import Sample

__all__ = ["iteration_records", "record_samples"]


def iteration_records(body: bytes) -> list[Any] | None:
    """The records of trtllm-serve's JSON page, oldest first; None where the body is no JSON."""
    if body[:100].lstrip()[:1] not in (b"[", b"{"):
        return None
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, list) else [decoded]


def record_samples(records: Sequence[Any], names: Container[str]) -> tuple[Sample, ...]:
    """The numbers of the newest record as samples, named by path (`kvCacheStats.usedNumBlocks`).

    Those of other names than `names` are left out.
    """
    newest = records[-1] if records else None
    if not isinstance(newest, Mapping):
        return ()
    samples: list[Sample] = []
    for key, value in newest.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        for name, number in ((key, value), *((f"{key}.{k}", v) for k, v in inner)):
            if name in names and isinstance(number, int | float) and not isinstance(number, bool):
                samples.append(Sample(name, {}, _as_float(number)))
    return tuple(samples)


def _as_float(number: float) -> float | None:
    try:
        return float(number)
    except OverflowError:  # an integer of hundreds of digits
        return None
