"""Live progress of a run on standard error: one line that is written over, or a line now and then.

It is written by the generator's own event loop, between two sends: what it costs is counted as lag
like all else, so it is a line of text and no drawing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections import Counter, deque
from typing import Final, TextIO

from mileage.cli.bench_format import latency
from mileage.measure.call_record import CallRecord
from mileage.measure.quantiles import quantile

__all__ = ["LiveLine"]

_TERMINAL_S: Final = 0.5
_QUIET_S: Final = 10.0
_RECENT: Final = 500
"""Latencies that p50 and p99 are of: enough for a p99, and sorted in no time."""
_RATE_S: Final = 5.0


class LiveLine:
    """Told of each record, it shows how the run goes while it is entered.

    `planned_s` is how long the run is planned to take; None: until its plan ends.
    """

    def __init__(self, *, warmup_s: float, planned_s: float | None, to: TextIO | None = None):
        self._to = sys.stderr if to is None else to
        self._warmup_s, self._planned_s = warmup_s, planned_s
        self._terminal = self._to.isatty()
        self._bold = self._terminal and "NO_COLOR" not in os.environ
        self._began_s = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._ended: deque[float] = deque(maxlen=10_000)
        self._ttft_s: deque[float] = deque(maxlen=_RECENT)
        self._lag_s: deque[float] = deque(maxlen=_RECENT)
        self._handle: asyncio.TimerHandle | None = None

    def seen(self, record: CallRecord) -> None:
        """A request is over."""
        self._outcomes[record.outcome] += 1
        self._ended.append(time.monotonic())
        if record.outcome == "ok" and record.token_times_s:
            self._ttft_s.append(record.token_times_s[0] - record.scheduled_s)
        if record.taken_s is not None:
            self._lag_s.append(record.taken_s - record.scheduled_s)

    def start(self) -> None:
        """Begin; needs a running loop."""
        self._began_s = time.monotonic()
        self._again()

    def stop(self) -> None:
        """End, and leave an empty line."""
        if self._handle is not None:
            self._handle.cancel()
        if self._terminal:
            self._write("\r\x1b[2K")

    def text(self, now_s: float) -> str:
        """The line as it is now."""
        passed_s = now_s - self._began_s
        phase = "warm-up" if passed_s < self._warmup_s else "measuring"
        whole = "" if self._planned_s is None else f"/{self._planned_s:.0f}"
        if self._planned_s is not None and passed_s > self._planned_s:
            phase, whole = "waiting for the last answers,", ""
        since_s = max(1e-9, min(_RATE_S, passed_s))
        recent = sum(at_s > now_s - since_s for at_s in self._ended)
        parts = [
            f"{phase} {passed_s:.0f}{whole} s",
            f"{self._outcomes['ok']:,} ok",
            *self._failures(),
            f"{recent / since_s:.3g}/s",
        ]
        if self._ttft_s:
            low, high = quantile(self._ttft_s, 0.5), quantile(self._ttft_s, 0.99)
            assert low is not None
            assert high is not None
            parts.append(f"TTFT p50 {latency(low)}, p99 {latency(high)}")
        if (lag_s := quantile(self._lag_s, 0.99)) is not None:
            parts.append(f"generator lag p99 {latency(lag_s)}")
        return ", ".join(parts)

    def _failures(self) -> list[str]:
        return [
            f"{number:,} {name}" for name, number in self._outcomes.most_common() if name != "ok"
        ]

    def _again(self) -> None:
        period_s = _TERMINAL_S if self._terminal else _QUIET_S
        self._handle = asyncio.get_running_loop().call_later(period_s, self._show)

    def _show(self) -> None:
        line = self.text(time.monotonic())
        if self._terminal:
            line = line[: max(20, shutil.get_terminal_size().columns - 1)]
            self._write(f"\r\x1b[2K\x1b[1m{line}\x1b[0m" if self._bold else f"\r\x1b[2K{line}")
        else:
            self._write(f"{line}\n")
        self._again()

    def _write(self, text: str) -> None:
        try:
            self._to.write(text)
            self._to.flush()
        except OSError:
            self._terminal = False  # nobody looks any more; the run goes on
