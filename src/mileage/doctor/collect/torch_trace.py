"""Traces of torch.profiler, in Chrome's JSON format -> what GPUs and the host did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from mileage.core.errors import TraceError
from mileage.doctor.collect.gpu_timeline import (
    GpuActivity,
    GpuTimeline,
    HostCall,
    StepMark,
    timeline_reading,
)
from mileage.doctor.collect.nsys_export import copy_kind
from mileage.doctor.collect.profile_reading import ProfileReading

__all__ = ["TOOL", "torch_reading"]

TOOL: Final = "torch.profiler"
_TIME_MAX_US: Final = 1e17
_SIZE_MAX: Final = 1 << 62
_RUNTIME: Final = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "driver"})
_COPIES: Final = frozenset({"gpu_memcpy", "gpu_memset", "memcpy", "memset"})


class _Event(msgspec.Struct, gc=False):
    """A record of the trace; other fields are of no use here."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Any = None


class _Trace(msgspec.Struct):
    records: list[msgspec.Raw] = msgspec.field(name="traceEvents")


def torch_reading(data: bytes, *, place: str) -> ProfileReading:
    """Facts and figures of one trace, which is of one process.

    Times are in microseconds, whatever `displayTimeUnit` says: that is for viewers. Time of the
    host is inflated by the profiler itself; shares of the GPU's time are what to trust.

    Raises:
        TraceError: it is no such trace, or a record (counted from 1) is none.
    """
    made = _Builder(place)
    for number, raw in enumerate(_records(data, place), start=1):
        try:
            event = msgspec.json.decode(raw, type=_Event)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise TraceError(place, number, f"record is no event ({error})") from None
        made.take(number, event)
    return timeline_reading(made.timeline(), tool=TOOL, place=place)


def _records(data: bytes, place: str) -> list[msgspec.Raw]:
    try:
        if data.lstrip()[:1] == b"[":
            return msgspec.json.decode(data, type=list[msgspec.Raw])
        return msgspec.json.decode(data, type=_Trace).records
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        reason = f"no trace of torch.profiler ({error}): was the engine ended while it wrote?"
        raise TraceError(place, 0, reason) from None


class _Builder:
    def __init__(self, place: str) -> None:
        self._place = place
        self._activities: list[GpuActivity] = []
        self._calls: list[HostCall] = []
        self._marks: list[StepMark] = []
        self._host_ops: list[tuple[int, int]] = []
        self._takers: Mapping[str, Callable[[int, _Event, int, int], None]] = {
            "kernel": self._take_activity,
            **dict.fromkeys(_COPIES, self._take_activity),
            **dict.fromkeys(_RUNTIME, self._take_call),
            "user_annotation": self._take_mark,
            "gpu_user_annotation": self._take_mark,
            "cpu_op": self._take_operator,
        }

    def take(self, number: int, event: _Event) -> None:
        """Keep what is of use; only complete events (phase X) have a duration."""
        if not isinstance(event.cat, str) or event.ph not in ("X", None):
            return
        taker = self._takers.get(event.cat.lower())
        if taker is None:
            return
        start_ns = self._ns(number, "ts", event.ts)
        taker(number, event, start_ns, start_ns + self._ns(number, "dur", event.dur))

    def timeline(self) -> GpuTimeline:
        return GpuTimeline(
            activities=self._activities,
            calls=self._calls,
            marks=self._marks,
            host_ops=self._host_ops,
        )

    def _take_activity(self, number: int, event: _Event, start_ns: int, end_ns: int) -> None:
        args = event.args if isinstance(event.args, dict) else {}
        name, device = str(event.name), args.get("device", event.pid)
        is_kernel = str(event.cat).lower() == "kernel"
        self._activities.append(
            GpuActivity(
                start_ns=start_ns,
                end_ns=end_ns,
                name=name,
                kind="kernel" if is_kernel else copy_kind(name),
                device=_count(device) or 0,
                stream=_count(args.get("stream", event.tid)) or 0,
                correlation=_count(args.get("correlation")),
                size_bytes=None if is_kernel else _count(args.get("bytes")),
            )
        )

    def _take_call(self, number: int, event: _Event, start_ns: int, end_ns: int) -> None:
        args = event.args if isinstance(event.args, dict) else {}
        correlation = _count(args.get("correlation"))
        self._calls.append(HostCall(start_ns, end_ns, str(event.name), correlation))

    def _take_mark(self, number: int, event: _Event, start_ns: int, end_ns: int) -> None:
        on_gpu = str(event.cat).lower().startswith("gpu")
        device = _count(event.pid) or 0 if on_gpu else 0
        self._marks.append(StepMark(start_ns, end_ns, str(event.name), on_gpu, device))

    def _take_operator(self, number: int, event: _Event, start_ns: int, end_ns: int) -> None:
        self._host_ops.append((start_ns, end_ns))

    def _ns(self, number: int, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            value = None
        try:
            us = float(value) if value is not None else -1.0
        except (ValueError, OverflowError):
            us = -1.0
        if not 0 <= us <= _TIME_MAX_US:
            raise TraceError(
                self._place, number, f"record's {name}: got {value!r}, expected microseconds"
            )
        return round(us * 1000)


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _SIZE_MAX:
        return None
    return value
