"""GpuMinuteQueue: minutes of GPUs on their way into the ledger, from any thread."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from mileage.core.errors import LedgerError
from mileage.storage.connection import Transactions
from mileage.storage.gpu_minutes import INSERT_GPU_MINUTE, GpuMinute

__all__ = ["PENDING_MAX", "GpuMinuteQueue"]

PENDING_MAX: Final = 50_000
"""Rows that wait for the database, some hours of a machine with eight GPUs; beyond, the oldest are
dropped and counted."""
_AT_ONCE: Final = 2_000
"""Rows of one transaction."""
_log = logging.getLogger(__name__)


class GpuMinuteQueue:
    """Takes rows from any thread, and stores them from one.

    A minute of a GPU and figure that is stored already stays as it is: two gateways that read the
    same exporter tell the same.
    """

    def __init__(self, *, pause_s: float, pause_max_s: float) -> None:
        """After a failure storing is tried again `pause_s` later, then less and less often."""
        self._pending: deque[GpuMinute] = deque()
        self._lock = threading.Lock()
        self._first_pause_s, self._pause_max_s = pause_s, pause_max_s
        self._pause_s, self._retry_at_s = pause_s, -math.inf
        self.dropped_total = 0
        """Rows that there was no room for, and rows without a number."""
        self.error: str | None = None
        """Why the last attempt stored nothing; None where it did."""

    def __len__(self) -> int:
        return len(self._pending)

    def note(self, rows: Sequence[GpuMinute]) -> None:
        """Take rows; never blocks for long, may be called from any thread."""
        finite = (row for row in rows if math.isfinite(row.mean) and math.isfinite(row.max))
        fit = [row._replace(host=_storable(row.host), gpu=_storable(row.gpu)) for row in finite]
        with self._lock:
            self.dropped_total += len(rows) - len(fit)
            self._pending.extend(fit)
            while len(self._pending) > PENDING_MAX:
                self._pending.popleft()
                self.dropped_total += 1

    def store(self, database: Transactions, now_s: float) -> bool:
        """Store some of what waits; True if more does, and can be stored at once. A failure is told
        in `error` and tried again later: it must not keep requests from being stored."""
        if not self._pending or now_s < self._retry_at_s:
            return False
        with self._lock:
            taken = [self._pending[place] for place in range(min(_AT_ONCE, len(self._pending)))]
        try:
            with database.transaction() as connection:
                connection.executemany(INSERT_GPU_MINUTE, taken)
        except LedgerError as error:
            if self.error is None:
                _log.error("minutes of GPUs cannot be stored: %s", error)
            self.error = str(error)
            self._retry_at_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, self._pause_max_s)
            return False
        self.error, self._pause_s = None, self._first_pause_s
        self._remove(taken)
        return bool(self._pending)

    def _remove(self, stored: Sequence[GpuMinute]) -> None:
        """Those that were dropped meanwhile are gone already."""
        gone = set(map(id, stored))
        with self._lock:
            while self._pending and id(self._pending[0]) in gone:
                self._pending.popleft()


def _storable(text: str) -> str:
    """What an exporter calls a GPU may hold what not every database can."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
