"""ThreadUse: how busy the threads of some processes are, and how long they wait for a core."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from mileage.measure.counter_rates import CounterRates
from mileage.scrape.host_files import KeptFile, schedstat

__all__ = ["ThreadLook", "ThreadUse"]

_REFRESH_S: Final = 1.0
_THREADS_MAX: Final = 1_024


class ThreadLook(msgspec.Struct, frozen=True, gc=False):
    """Since the look before. None: no thread was seen twice."""

    cores: float | None
    """CPU seconds per second of all threads."""
    busiest_ratio: float | None
    busiest_name: str
    wait_max_ratio: float | None
    """Of the thread that was longest ready to run without a core."""


class _Thread:
    def __init__(self, directory: Path) -> None:
        """Raises OSError where the thread is gone."""
        self._directory = directory
        self._schedstat = KeptFile(directory / "schedstat")

    def text(self) -> str:
        return self._schedstat.read()

    def name(self) -> str:
        try:
            return (self._directory / "comm").read_text("utf-8", "replace").strip()
        except OSError:
            return ""

    def close(self) -> None:
        self._schedstat.close()


class ThreadUse:
    """Reads /proc/PID/task/TID/schedstat, to the nanosecond. Once a second it looks which threads
    there are; in between, only at those that did something of late."""

    def __init__(self, pids: Iterable[int], *, proc: Path = Path("/proc")) -> None:
        self._pids, self._proc = tuple(pids), proc
        self._threads: dict[tuple[int, int], _Thread] = {}
        self._texts: dict[tuple[int, int], str] = {}
        self._at_work: list[tuple[int, int]] = []
        self._rates = CounterRates()
        self._refreshed_s: float | None = None
        self._looks = 0

    @property
    def is_gone(self) -> bool:
        """Whether none of the processes has a thread left."""
        return self._refreshed_s is not None and not self._threads

    def look(self, at_s: float) -> ThreadLook:
        """One look. Never raises: threads that are gone are left out."""
        self._looks += 1
        # Servers have hundreds of threads that wait: the second look sees already which work.
        if self._looks <= 2 or at_s - (self._refreshed_s or 0.0) >= _REFRESH_S:
            self._refresh(at_s)
        busy: dict[tuple[int, int], float] = {}
        waits: list[float] = []
        for key in self._at_work:
            try:
                text = self._threads[key].text()
            except (OSError, KeyError):
                continue  # it has just ended
            ran, waited = self._rates_of(key, text, at_s)
            if ran is not None:
                busy[key] = ran
            if waited is not None:
                waits.append(min(1.0, waited))
        if not busy:
            quiet = self._looks > 1 and bool(self._threads)
            return ThreadLook(0.0 if quiet else None, 0.0 if quiet else None, "", None)
        busiest = max(busy, key=lambda key: busy[key])
        return ThreadLook(
            cores=sum(busy.values()),
            busiest_ratio=min(1.0, busy[busiest]),
            busiest_name=self._threads[busiest].name(),
            wait_max_ratio=max(waits, default=None),
        )

    def close(self) -> None:
        """Close all files."""
        for thread in self._threads.values():
            thread.close()
        self._threads.clear()

    def _rates_of(
        self, key: tuple[int, int], text: str, at_s: float
    ) -> tuple[float | None, float | None]:
        """Shares of the time since this thread's text before: run, and ready without a core."""
        try:
            ran_s, waited_s = schedstat(text)
        except ValueError:
            return None, None
        ran = self._rates.rate((key, "ran"), ran_s, at_s)
        return ran, self._rates.rate((key, "waited"), waited_s, at_s)

    def _refresh(self, at_s: float) -> None:
        found = {(pid, tid) for pid in self._pids for tid in self._tids(pid)}
        for key in set(self._threads) - found:
            self._threads.pop(key).close()
        for pid, tid in found - set(self._threads):
            try:
                self._threads[pid, tid] = _Thread(self._proc / str(pid) / "task" / str(tid))
            except OSError:
                continue
        before, before_s = self._texts, self._refreshed_s
        self._texts, self._refreshed_s = {}, at_s
        for key, thread in self._threads.items():
            try:
                self._texts[key] = thread.text()
            except OSError:
                continue
        known = set(self._at_work)
        self._at_work = [key for key, text in self._texts.items() if text != before.get(key)]
        if before_s is not None:
            for key in (set(self._at_work) - known) & before.keys():
                self._rates_of(key, before[key], before_s)  # it began to work since then

    def _tids(self, pid: int) -> list[int]:
        try:
            names = os.listdir(self._proc / str(pid) / "task")
        except OSError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())[:_THREADS_MAX]
