"""Requests and their ends, as a gateway records them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import astuple

from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.storage.record import FINISH_FIELDS, encode_token_times
from mileage.storage.sqlite import RowBatch
from mileage.storage.store import LedgerStore

__all__ = ["BASE_UTC_NS", "request", "request_id", "store_ends", "streamed", "timeline"]

BASE_UTC_NS = 1_764_428_000_000_000_000
"""Arrival of request 0; each next one arrives a millisecond later."""


def request_id(number: int, worker: int = 0) -> int:
    """An id as the gateway makes it: microseconds and worker."""
    return (BASE_UTC_NS // 1000 + 1000 * number) << 6 | worker


def request(number: int, worker: int = 0, **changes: Any) -> Request:
    """A chat request of one of three tenants."""
    fields: dict[str, Any] = {
        "id": request_id(number, worker),
        "tenant": f"team-{number % 3}",
        "model": "smollm2",
        "endpoint": "chat",
        "stream": False,
        "arrived_s": float(number),
        "prompt_tokens_estimate": 100,
    }
    return Request(**{**fields, **changes})


def timeline(number: int, worker: int = 0, **changes: Any) -> RequestTimeline:
    """The good end of request `number`, without a stream."""
    fields: dict[str, Any] = {
        "id": request_id(number, worker),
        "tenant": f"team-{number % 3}",
        "model": "smollm2",
        "endpoint": "chat",
        "stream": False,
        "arrived_at_utc_ns": BASE_UTC_NS + number * 1_000_000,
        "outcome": "ok",
        "status": 200,
        "replica": "127.0.0.1:9000",
        "attempts": 1,
        "dispatched_s": 0.000125,
        "first_token_s": 0.0123,
        "last_token_s": 0.1 + 0.2,
        "finished_s": 0.31,
        "prompt_tokens": 100,
        "output_tokens": 17,
    }
    return RequestTimeline(**{**fields, **changes})


def store_ends(store: LedgerStore, timelines: Iterable[RequestTimeline]) -> int:
    """Store the ends in one transaction; how many were not stored before."""
    place = FINISH_FIELDS.index("token_times")
    rows: list[Any] = []
    for end in timelines:
        row: tuple[Any, ...] = astuple(end)
        times = encode_token_times(end.token_times) if end.token_times else None
        rows.append((*row[:place], times, *row[place + 1 :]))
    return store.insert(RowBatch(detailed=rows)).inserted


def streamed(number: int, worker: int = 0, **changes: Any) -> RequestTimeline:
    """The good end of request `number`, with the details of a stream."""
    fields: dict[str, Any] = {
        "stream": True,
        "cached_tokens": 64,
        "reasoning_tokens": 3,
        "output_tokens_counted": 17,
        "itl_mean_s": 0.01,
        "itl_p99_s": 0.02,
        "itl_max_s": 0.03,
        "token_times": (12_300, 1, 22_300, 2, 300_000, 14),
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    }
    return timeline(number, worker, **{**fields, **changes})
