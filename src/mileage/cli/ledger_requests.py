"""LedgerRequests: requests of a ledger by arrival, for those who look again and again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from mileage.core.timeline import RequestTimeline
from mileage.storage.queries import LedgerReader, RequestFilter

__all__ = ["LedgerRequests"]


class LedgerRequests:
    """A ledger, opened for each look: it may be moved, or migrated, in between."""

    def __init__(self, place: Path | str, where: RequestFilter | None = None) -> None:
        self._place, self._where = place, where or RequestFilter()

    def arrived(self, since_utc_ns: int, before_utc_ns: int | None) -> Iterator[RequestTimeline]:
        """Those that arrived in the time, in order; LedgerError where it cannot be read."""
        where = msgspec.structs.replace(self._where, since_utc_ns=since_utc_ns)
        reader = LedgerReader(self._place)
        try:
            for timeline in reader.by_arrival(where):
                if before_utc_ns is not None and timeline.arrived_at_utc_ns >= before_utc_ns:
                    return
                yield timeline
        finally:
            reader.close()
