"""RequestFollower: finds the requests of a ledger that were stored since it last looked."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from mileage.core.timeline import RequestTimeline

__all__ = ["RequestFollower", "TimelineSource"]

_NS: Final = 1_000_000_000
SHORT_NS: Final = 60 * _NS
LONG_NS: Final = 3600 * _NS
IDS_MAX: Final = 2_000_000


class TimelineSource(Protocol):
    """Reads requests by arrival."""

    def arrived(self, since_utc_ns: int, before_utc_ns: int) -> Iterable[RequestTimeline]:
        """Those that arrived in the time, in order."""
        ...


class RequestFollower:
    """Each request once, as soon as it is found.

    A ledger is in order of arrival and requests are stored when they end. So those of the last
    minute are looked at every time, and those of the last hour once a minute: a request that runs
    longer than an hour is not found. Ids that were found are kept for that hour, at most IDS_MAX.
    """

    def __init__(self, source: TimelineSource, since_utc_ns: int) -> None:
        self._source, self._since_ns = source, since_utc_ns
        self._found: set[int] = set()
        self._order: deque[tuple[int, int]] = deque()
        self._looked_long_ns = since_utc_ns
        self.forgotten = 0
        """Ids that there was no room for: their requests may be found twice."""

    def look(self, now_utc_ns: int) -> Iterator[RequestTimeline]:
        """What is new."""
        long = now_utc_ns - self._looked_long_ns >= SHORT_NS
        if long:
            self._looked_long_ns = now_utc_ns
        since_ns = max(self._since_ns, now_utc_ns - (LONG_NS if long else 2 * SHORT_NS))
        self._forget(now_utc_ns)
        for timeline in self._source.arrived(since_ns, now_utc_ns + SHORT_NS):
            if timeline.id not in self._found:
                self._found.add(timeline.id)
                self._order.append((timeline.arrived_at_utc_ns, timeline.id))
                yield timeline

    def _forget(self, now_utc_ns: int) -> None:
        order = self._order
        while order and (order[0][0] < now_utc_ns - LONG_NS - SHORT_NS or len(order) > IDS_MAX):
            arrived_ns, request_id = order.popleft()
            self._found.discard(request_id)
            self.forgotten += arrived_ns >= now_utc_ns - LONG_NS
