"""`mileage requests --follow`: served requests as a structured log, a JSON document a line."""

from __future__ import annotations

import datetime as dt
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.ledger_requests import LedgerRequests
from mileage.core.timeline import RequestTimeline
from mileage.storage.queries import RequestFilter
from mileage.storage.request_follower import RequestFollower

__all__ = ["follow_requests", "request_document", "utc_text"]

_PERIOD_S: Final = 1.0


def follow_requests(ledger: Path | str, where: RequestFilter) -> None:
    """Print those that match, as they are stored, until SIGINT or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    since_ns = time.time_ns() if where.since_utc_ns is None else where.since_utc_ns
    follower = RequestFollower(LedgerRequests(ledger, where), since_ns)
    while True:
        ending = stop.is_set()
        for timeline in follower.look(time.time_ns()):
            document = request_document(timeline)
            del document["token_times"]  # thousands of numbers: they are in the ledger
            sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        sys.stdout.flush()
        if ending:
            return
        stop.wait(_PERIOD_S)


def request_document(timeline: RequestTimeline) -> dict[str, Any]:
    """The request as JSON documents have it."""
    return {
        **msgspec.structs.asdict(timeline),
        "arrived_at_utc": utc_text(timeline.arrived_at_utc_ns, "microseconds"),
    }


def utc_text(utc_ns: int, precision: str) -> str:
    """A moment in ISO 8601; the number where it is none that calendars have."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    try:
        moment = epoch + dt.timedelta(microseconds=utc_ns // 1000)
    except OverflowError:
        return str(utc_ns)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
