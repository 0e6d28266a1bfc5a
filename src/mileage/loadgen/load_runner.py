"""LoadRunner: the clockwork of one run, which wakes when something is due until all is over."""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Callable, Sequence

from mileage.loadgen.dispatcher import Dispatcher
from mileage.loadgen.feed import Feed
from mileage.loadgen.generator_gauge import BEAT_S, GeneratorGauge
from mileage.loadgen.pace import make_pace
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.silence import Silence
from mileage.loadgen.target import Target
from mileage.loadgen.timer_fd import TimerFd
from mileage.measure.call_record import CallOutcome, CallRecord, Phase

__all__ = ["LoadRunner"]

_BATCH = 64
"""Calls sent in one go: what arrived meanwhile is read before the next ones."""
_FILL_S = 0.0005
"""One go of reading ahead in the plan."""
_DROP_S = 2.0
"""What was due and never left is recorded for so long: of a plan that no machine keeps up with,
a billion calls a second, memory would not hold the rest."""
_GARBAGE_MAX = 100_000
"""Containers made and not freed since the last collection, at which one is worth its pause."""


class LoadRunner:
    """Runs one load; all times are seconds since `zero_s` on the monotonic clock.

    Everything happens on one timer: calls that are due, and a beat a hundred times a second, which
    tells how late the event loop is, opens and closes the window, and ends the run.
    """

    def __init__(
        self,
        feed: Feed,
        targets: Sequence[Target],
        options: RunOptions,
        *,
        zero_s: float,
        connections_max: int,
        on_record: Callable[[CallRecord], None] | None,
    ) -> None:
        self.records: list[CallRecord] = []
        self.gauge = GeneratorGauge()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the run is over."""
        self.unrecorded_from_s: float | None = None
        """Calls due from here on were so many that they are not even in the records."""
        self.given_up: str | None = None
        """Why the run ended before its time: nobody said anything."""
        self._feed, self._options, self._zero_s, self._on_record = feed, options, zero_s, on_record
        self._end_s = math.inf
        if options.duration_s is not None:
            self._end_s = options.warmup_s + options.duration_s
        self._pace = make_pace(feed, options, until_s=self._end_s)
        self._dispatcher = Dispatcher(
            targets, options, connections_max=connections_max, zero_s=zero_s, over=self._call_over
        )
        self._silence = Silence(options.silence_max_s)
        self._timer = TimerFd()
        self._beats = 0
        self._last_due_s = 0.0
        self._closed = options.mode == "closed"
        self._ending = False

    def now_s(self) -> float:
        """Seconds since the run began; negative before."""
        return time.monotonic() - self._zero_s

    def start(self) -> None:
        """Begin when the run's zero comes."""
        self._dispatcher.start()
        asyncio.get_running_loop().add_reader(self._timer.fileno(), self._wake)
        self._timer.arm(self._zero_s)

    def give_up(self) -> None:
        """What is on its way is recorded as it is; the run is over."""
        if not self._ending:
            self._finish("cancelled", "the run was stopped")

    def stop(self) -> None:
        """Let go of the timer and of all connections."""
        asyncio.get_running_loop().remove_reader(self._timer.fileno())
        self._timer.close()
        self._dispatcher.stop()

    def _wake(self) -> None:
        try:
            self._timer.rest()
            now_s = self.now_s()
            self._beat(now_s)
            if not self._ending:
                self._send_due(now_s)
                self._arm()
        except Exception as error:
            self._fail(error)

    def _beat(self, now_s: float) -> None:
        """Note the beats that came due, every one of them, and what changes with time."""
        due = int(now_s / BEAT_S)
        if due < self._beats:
            return
        if not self.gauge.was_opened and self._options.warmup_s <= now_s < self._end_s:
            self.gauge.open()
        while self._beats <= due:
            if self.gauge.is_open:
                self.gauge.beat(now_s - self._beats * BEAT_S)
            self._beats += 1
        if now_s >= self._end_s:
            self.gauge.close()
        if gc.get_count()[0] > _GARBAGE_MAX:
            gc.collect(0)
        self._try_to_end(now_s)
        if not self._ending and self._silence.is_too_long(now_s, self._dispatcher.heard_s):
            self.given_up = (
                f"nothing came from the server for {self._options.silence_max_s:g} s, though "
                "requests waited: the run was given up"
            )
            self._finish("timeout", self.given_up)

    def _send_due(self, now_s: float) -> None:
        pace = self._pace
        for _ in range(_BATCH):
            due = pace.take(now_s)
            if due is None:
                break
            call, due_s = due
            self._last_due_s = due_s
            self._dispatcher.send(call, scheduled_s=due_s, phase=self._phase(due_s))
            self._silence.asked(now_s)
        if self._feed.low:
            spare_s = min(_FILL_S, pace.next_s() - self.now_s())
            self._feed.fill(max(0.0, spare_s))

    def _arm(self) -> None:
        beat_s = self._beats * BEAT_S
        self._timer.arm(self._zero_s + min(beat_s, self._pace.next_s()))

    def _call_over(self, record: CallRecord) -> None:
        self.records.append(record)
        self._silence.over(record)
        try:
            if self._on_record is not None:
                self._on_record(record)
            if not self._ending:
                self._go_on(record)
        except Exception as error:
            self._fail(error)

    def _go_on(self, record: CallRecord) -> None:
        now_s = self.now_s()
        self._pace.free(now_s, failed=record.outcome not in ("ok", "cancelled"))
        if self._closed:
            self._send_due(now_s)
            if self._pace.next_s() < self._beats * BEAT_S:
                self._arm()
        if self._dispatcher.idle:
            self._try_to_end(now_s)

    def _try_to_end(self, now_s: float) -> None:
        """The run ends with its last answer, but not within its window; or with the drain."""
        last_s = self._last_due_s if self._options.duration_s is None else self._end_s
        if self._pace.over and self._dispatcher.idle:
            if self._options.duration_s is None or now_s >= self._end_s:
                self._finish("timeout", "")
        elif now_s >= last_s + self._options.drain_s and (self._pace.over or now_s > self._end_s):
            text = f"no whole answer {self._options.drain_s:g} s after the last call was due"
            self._finish("timeout", text)

    def _finish(self, outcome: CallOutcome, error: str) -> None:
        """End the run: what is on its way is given up, and what is due will not be sent."""
        self._ending = True
        self.gauge.close()
        self._dispatcher.give_up(outcome, error)
        now_s = self.now_s()
        while (due := self._pace.take(now_s)) is not None:
            call, due_s = due
            self._dispatcher.drop(call, scheduled_s=due_s, phase=self._phase(due_s), error=error)
            if self.now_s() > now_s + _DROP_S:
                if (next_s := self._pace.next_s()) <= now_s:
                    self.unrecorded_from_s = next_s
                break
        if not self.done.done():
            self.done.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._ending = True
        if not self.done.done():
            self.done.set_exception(error)

    def _phase(self, due_s: float) -> Phase:
        return "warmup" if due_s < self._options.warmup_s else "measured"
