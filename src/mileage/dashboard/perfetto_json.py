"""JsonTrace: a trace as trace events in JSON, which Perfetto and Chrome's tracing open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

from mileage.dashboard.trace_writer import Value

__all__ = ["JsonTrace"]


class JsonTrace:
    """A TraceWriter. Times are in microseconds, as the format wants: nanoseconds are decimals, of
    which a reader keeps as many as its numbers have."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encode = msgspec.json.Encoder().encode
        self._names: dict[int, str] = {}
        self._process_of: dict[int, int] = {}
        self._last = 0
        self._first = True
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[')

    def process(self, name: str) -> int:
        """A group of tracks."""
        pid = self._next()
        self._meta("process_name", pid, 0, name)
        return pid

    def track(self, process: int, name: str) -> int:
        """A row of slices."""
        tid = self._next()
        self._process_of[tid] = process
        self._meta("thread_name", process, tid, name)
        return tid

    def counter(self, process: int, name: str, unit: str) -> int:
        """A curve."""
        number = self._next()
        self._process_of[number] = process
        self._names[number] = f"{name} ({unit})" if unit else name
        return number

    def begin(
        self,
        track: int,
        name: str,
        at_ns: int,
        args: Mapping[str, Value],
        *,
        flow_from: int | None = None,
        flow_to: int | None = None,
    ) -> None:
        """A slice begins."""
        place = {"pid": self._process_of[track], "tid": track, "ts": at_ns / 1000}
        self._add({"ph": "B", "name": name, "cat": "mileage", **place, "args": args})
        for phase, flow in (("s", flow_from), ("f", flow_to)):
            if flow is not None:
                bound = {"bp": "e"} if phase == "f" else {}
                self._add(
                    {
                        "ph": phase,
                        "id": str(flow),
                        "name": "request",
                        "cat": "mileage",
                        **place,
                        **bound,
                    }
                )

    def end(self, track: int, at_ns: int) -> None:
        """The slice that began last and has not ended, ends."""
        self._add({"ph": "E", "pid": self._process_of[track], "tid": track, "ts": at_ns / 1000})

    def count(self, counter: int, at_ns: int, value: float) -> None:
        """The curve has this value from then on."""
        event = {"ph": "C", "pid": self._process_of[counter], "name": self._names[counter]}
        self._add({**event, "ts": at_ns / 1000, "args": {"value": value}})

    def finish(self) -> None:
        """Nothing follows."""
        self._file.write(b"]}\n")

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _meta(self, kind: str, pid: int, tid: int, name: str) -> None:
        self._add({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}})

    def _add(self, event: dict[str, Any]) -> None:
        self._file.write((b"" if self._first else b",\n") + self._encode(event))
        self._first = False
