"""Slots: one stretch of paced streams, through which something is switched on and off."""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.support.closed_loop import run_closed_loop
from benchmarks.support.judges import Judge, StampedEvents
from benchmarks.support.payloads import STREAM_MODEL, chat_request, http_request
from benchmarks.support.rounds import EVENTS, PACED_INTERVAL_MS, PACED_STREAMS
from benchmarks.support.stacks import Stack
from benchmarks.support.statistics import quantile
from benchmarks.support.watch import CoreUse, Watch

__all__ = ["Compared", "Slot", "SlotRun", "compared", "paced_slots"]

RAMP_S = EVENTS * PACED_INTERVAL_MS / 1e3
"""As long as a stream: its beginnings and ends, which cost as much as a hundred events, are spread
evenly then, and each slot has as many of them."""
BEGIN_S = 1.0
SETTLE_S = 0.1
"""Of a slot: what was put off while it was switched off is not the slot's."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Of one slot: CPU time by group of processes, per event or of a core; delays of events from
    their write to their read."""

    on: bool
    events: int
    cpu_us: float
    switched_ratio: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class SlotRun:
    """Slots in turns: off, on, on, off, off, on, ..."""

    slots: tuple[Slot, ...]
    errors: int
    first_error: str | None
    use: CoreUse


@dataclass(frozen=True, slots=True)
class Compared:
    """On over off, pair by pair of neighbours: the median, and its 95 % interval by ranks."""

    ratio: float
    low: float
    high: float


def paced_slots(
    stack: Stack,
    switch: Callable[[bool], None],
    *,
    gateway: Sequence[int],
    switched: Sequence[int],
    pairs: int,
    slot_s: float,
) -> SlotRun:
    """Streams without a break, and `switch` called with each slot's state.

    `gateway` and `switched` are processes whose CPU time is read, to the nanosecond.
    """
    at_ns, delays_ns = array("q"), array("q")

    def on_event(_number: int, delay_ns: int, now_ns: int) -> None:
        at_ns.append(now_ns)
        delays_ns.append(delay_ns)

    def judge() -> Judge:
        return StampedEvents(EVENTS, on_event)

    marks: list[tuple[bool, int, int, int, int]] = []

    def turns() -> None:
        time.sleep(RAMP_S + BEGIN_S)
        for place in range(2 * pairs):
            on = place % 4 in (1, 2)
            switch(on)
            time.sleep(SETTLE_S)
            start_ns, gateway_ns, switched_ns = _read(gateway, switched)
            time.sleep(slot_s)
            end_ns, gateway_end_ns, switched_end_ns = _read(gateway, switched)
            spent = gateway_end_ns - gateway_ns, switched_end_ns - switched_ns
            marks.append((on, start_ns, end_ns, *spent))
        switch(True)

    body = chat_request(
        STREAM_MODEL, stream=True, user=f"events={EVENTS} interval_ms={PACED_INTERVAL_MS}"
    )
    watch = Watch(stack)
    turner = threading.Thread(target=turns)
    turner.start()
    result = run_closed_loop(
        stack.stream_port,
        http_request(body, key=stack.key),
        judge,
        connections=PACED_STREAMS,
        window_s=RAMP_S + BEGIN_S + 2 * pairs * (slot_s + SETTLE_S) + 0.5,
        ramp_s=RAMP_S,
    )
    turner.join()
    use = watch.read()
    slots = []
    for on, start_ns, end_ns, gateway_ns, switched_ns in marks:
        span = slice(bisect_left(at_ns, start_ns), bisect_left(at_ns, end_ns))
        found = sorted(delays_ns[span])
        slots.append(
            Slot(
                on=on,
                events=len(found),
                cpu_us=gateway_ns / max(1, len(found)) / 1e3,
                switched_ratio=switched_ns / (end_ns - start_ns),
                p50_ms=quantile(found, 0.5) / 1e6 if found else 0.0,
                p99_ms=quantile(found, 0.99) / 1e6 if found else 0.0,
            )
        )
    return SlotRun(tuple(slots), result.errors, result.first_error, use)


def compared(slots: Sequence[Slot], figure: Callable[[Slot], float]) -> Compared:
    """A figure with over without, by pairs of neighbours in `slots`, which are even in number."""
    ratios = []
    for first, second in zip(slots[::2], slots[1::2], strict=True):
        on, off = (first, second) if first.on else (second, first)
        ratios.append(figure(on) / figure(off))
    ratios.sort()
    rank = max(0, int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5))
    return Compared(median(ratios), ratios[rank], ratios[-1 - rank])


def _read(gateway: Sequence[int], switched: Sequence[int]) -> tuple[int, int, int]:
    return time.monotonic_ns(), sum(map(_cpu_ns, gateway)), sum(map(_cpu_ns, switched))


def _cpu_ns(pid: int) -> int:
    """CPU nanoseconds of all threads that a process has."""
    total = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                total += int((task / "schedstat").read_text("ascii").split()[0])
    return total
