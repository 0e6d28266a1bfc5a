"""CountingQueue: whose prompt is counted next, so that none waits for all of another tenant's."""

from __future__ import annotations

import threading
from collections import Counter
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["CountingQueue", "Queued"]

_STALE_MIN: Final = 64


class Queued(Protocol):
    """One prompt that waits."""

    tenant: str
    waits: bool
    """Whether it is in the queue; the queue's own."""

    size_bytes: int
    """Its count takes about as long as it is."""


JobT = TypeVar("JobT", bound=Queued)


class CountingQueue(Generic[JobT]):
    """Start-time fair queueing of bytes (Goyal, Vin and Cheng, 1996), of tenants of one weight.

    A prompt starts, by a clock of work, where its tenant's last one ends, or now; the earliest is
    taken. So a tenant with many or long prompts waits for itself: any other's next one waits for no
    more than those that are being counted, and a share of what is. For several threads at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, JobT]] = []
        self._ends: dict[str, int] = {}
        self._waiting: Counter[str] = Counter()
        self._clock = self._number = self._live = 0

    def __len__(self) -> int:
        return self._live

    def put(self, job: JobT) -> None:
        """It waits from now on."""
        with self._lock:
            start = max(self._clock, self._ends.get(job.tenant, 0))
            if len(self._ends) > 2 * len(self._waiting) + _STALE_MIN:
                self._ends = {name: self._ends[name] for name in self._waiting}
            self._ends[job.tenant] = start + job.size_bytes
            self._number += 1
            self._live += 1
            self._waiting[job.tenant] += 1
            job.waits = True
            heappush(self._heap, (start, self._number, job))

    def take(self) -> JobT | None:
        """The next one; None where nobody waits."""
        with self._lock:
            while self._heap:
                start, _, job = heappop(self._heap)
                if job.waits:
                    self._clock = start
                    self._out(job)
                    return job
        return None

    def drop(self, job: JobT) -> bool:
        """It waits no more; False where it did not: it is being counted, or was."""
        with self._lock:
            if not job.waits:
                return False
            self._out(job, undone=True)
            if len(self._heap) > 2 * self._live + _STALE_MIN:
                self._heap = [entry for entry in self._heap if entry[2].waits]
                heapify(self._heap)
            return True

    def displaced(self, tenant: str) -> JobT | None:
        """Take out the last one of the tenant that has the most, for one of this tenant's; None
        where this one would have as many itself."""
        with self._lock:
            most, count = max(self._waiting.items(), key=lambda item: item[1], default=("", 0))
            if count <= self._waiting[tenant] + 1:
                return None
            job = max(each for each in self._heap if each[2].waits and each[2].tenant == most)[2]
            self._out(job, undone=True)
            return job

    def _out(self, job: JobT, *, undone: bool = False) -> None:
        job.waits = False
        if undone:
            self._ends[job.tenant] -= job.size_bytes
        self._live -= 1
        self._waiting[job.tenant] -= 1
        if not self._waiting[job.tenant]:
            del self._waiting[job.tenant]
