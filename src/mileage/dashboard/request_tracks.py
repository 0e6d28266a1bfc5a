"""RequestTracks: requests as slices on as few tracks as hold them, with counters beside."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

import msgspec

from mileage.core.timeline import RequestTimeline
from mileage.dashboard.trace_writer import TraceWriter, Value

__all__ = ["RequestTracks", "TraceCounts"]

_NS: Final = 1_000_000_000
_RUNNING, _WAITING = "requests in the engine", "requests in the queue"


class TraceCounts(msgspec.Struct, kw_only=True):
    """What was written."""

    requests: int = 0
    slices: int = 0
    first_ns: int | None = None
    last_ns: int | None = None

    def saw(self, start_ns: int, end_ns: int) -> None:
        """A slice of this time."""
        self.slices += 1
        if self.first_ns is None or start_ns < self.first_ns:
            self.first_ns = start_ns
        if self.last_ns is None or end_ns > self.last_ns:
            self.last_ns = end_ns


class _Lanes:
    """Tracks of one process; each takes a slice that begins when its last one has ended."""

    def __init__(self, writer: TraceWriter, process: int, name: str) -> None:
        self._writer, self._process, self._name = writer, process, name
        self._free_at: list[tuple[int, int]] = []
        self._count = 0

    def take(self, start_ns: int, end_ns: int) -> int:
        """The track for a slice of this time."""
        if self._free_at and self._free_at[0][0] <= start_ns:
            track = heapq.heappop(self._free_at)[1]
        else:
            self._count += 1
            track = self._writer.track(self._process, f"{self._name} {self._count}")
        heapq.heappush(self._free_at, (end_ns, track))
        return track


class _Level:
    """A curve that goes up and down by one; what comes is told in any order up to a time."""

    def __init__(self, writer: TraceWriter, counter: int) -> None:
        self._writer, self._counter = writer, counter
        self._changes: list[tuple[int, int]] = []
        self._level = 0

    def add(self, start_ns: int, end_ns: int) -> None:
        """One more between the times."""
        heapq.heappush(self._changes, (start_ns, 1))
        heapq.heappush(self._changes, (end_ns, -1))

    def write(self, before_ns: int | None = None) -> None:
        """Write all changes before the time; None: all."""
        changes = self._changes
        while changes and (before_ns is None or changes[0][0] < before_ns):
            at_ns = changes[0][0]
            level = self._level
            while changes and changes[0][0] == at_ns:
                level += heapq.heappop(changes)[1]
            if level != self._level:
                self._level = level
                self._writer.count(self._counter, at_ns, level)


class RequestTracks:
    """Writes requests in the order of arrival: the gateway's part on its own tracks, the engine's
    on those of its replica, an arrow from one to the other.

    Memory is that of the requests in flight at once. A request that was never sent to an engine has
    the gateway's part alone.
    """

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._gateway = writer.process("gateway")
        self._lanes = _Lanes(writer, self._gateway, "requests")
        self._waiting = _Level(writer, writer.counter(self._gateway, _WAITING, "requests"))
        self._replicas: dict[str, tuple[int, _Lanes, _Level]] = {}
        self.counts = TraceCounts()

    def process_of(self, replica: str) -> int:
        """The process whose tracks are the replica's."""
        return self._replica(replica)[0]

    def write(self, timelines: Iterable[RequestTimeline]) -> None:
        """Write requests that come in the order of arrival."""
        for timeline in timelines:
            for _, _, level in self._replicas.values():
                level.write(timeline.arrived_at_utc_ns)
            self._waiting.write(timeline.arrived_at_utc_ns)
            self._request(timeline)

    def finish(self) -> None:
        """No request follows."""
        self._waiting.write()
        for _, _, level in self._replicas.values():
            level.write()

    def _request(self, timeline: RequestTimeline) -> None:
        start_ns = timeline.arrived_at_utc_ns

        def at(offset_s: float | None, least_ns: int) -> int:
            return least_ns if offset_s is None else max(least_ns, start_ns + round(offset_s * _NS))

        sent_ns = at(timeline.dispatched_s, start_ns)
        first_ns = at(timeline.first_token_s, sent_ns)
        last_ns = at(timeline.last_token_s, first_ns)
        end_ns = at(timeline.finished_s, last_ns)
        self.counts.requests += 1
        self.counts.saw(start_ns, end_ns)
        writer = self._writer
        track = self._lanes.take(start_ns, end_ns)
        sent = timeline.dispatched_s is not None and timeline.replica is not None
        flow = timeline.id + 1 if sent else None
        writer.begin(track, timeline.tenant, start_ns, _args(timeline), flow_from=flow)
        if sent and sent_ns > start_ns:
            self._part(track, "queue", start_ns, sent_ns)
            self._waiting.add(start_ns, sent_ns)
        writer.end(track, end_ns)
        if not sent:
            return
        assert timeline.replica is not None
        _, lanes, running = self._replica(timeline.replica)
        running.add(sent_ns, end_ns)
        self.counts.saw(sent_ns, end_ns)
        track = lanes.take(sent_ns, end_ns)
        writer.begin(track, timeline.model, sent_ns, {"request": str(timeline.id)}, flow_to=flow)
        if timeline.first_token_s is not None:
            self._part(track, "prefill", sent_ns, first_ns)
            if last_ns > first_ns:
                self._part(track, "decode", first_ns, last_ns)
        writer.end(track, end_ns)

    def _part(self, track: int, name: str, start_ns: int, end_ns: int) -> None:
        self._writer.begin(track, name, start_ns, {})
        self._writer.end(track, end_ns)
        self.counts.saw(start_ns, end_ns)

    def _replica(self, name: str) -> tuple[int, _Lanes, _Level]:
        found = self._replicas.get(name)
        if found is None:
            process = self._writer.process(f"replica {name}")
            counter = self._writer.counter(process, _RUNNING, "requests")
            lanes = _Lanes(self._writer, process, "requests")
            found = self._replicas[name] = (process, lanes, _Level(self._writer, counter))
        return found


def _args(timeline: RequestTimeline) -> dict[str, Value]:
    given: dict[str, Value | None] = {
        "request": str(timeline.id),
        "model": timeline.model,
        "adapter": timeline.adapter,
        "outcome": timeline.outcome,
        "reason": timeline.reason,
        "prompt_tokens": timeline.prompt_tokens,
        "cached_tokens": timeline.cached_tokens,
        "output_tokens": timeline.output_tokens,
        "itl_p99_s": timeline.itl_p99_s,
        "gpu_ns": timeline.gpu_ns,
        "labels": timeline.labels,
        "trace_id": timeline.trace_id,
    }
    return {name: value for name, value in given.items() if value is not None}
