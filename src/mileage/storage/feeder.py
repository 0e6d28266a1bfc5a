"""Feeder: the thread that keeps the ledger's database up with the request log."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from mileage.core.errors import LedgerError
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.replica_attribution import ReplicaAttribution
from mileage.ledger.replica_time import ReplicaTime
from mileage.storage.attributor import Attributor
from mileage.storage.engine_request_files import EngineRequestFiles
from mileage.storage.follower import LogFollower, Totals
from mileage.storage.gpu_minute_queue import GpuMinuteQueue
from mileage.storage.gpu_minutes import GpuMinute
from mileage.storage.lock import DirectoryLock
from mileage.storage.postgres_connection import out_of_reach
from mileage.storage.replica_times import ReplicaTimes
from mileage.storage.request_rows import NS_PER_S
from mileage.storage.retention import Retention
from mileage.storage.segment import log_directory, remove_leftovers
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore, may_pass
from mileage.storage.step_directory import STEPS_NAME, StepDirectory
from mileage.storage.store import LedgerStore

__all__ = ["Feeder", "FeederStatus"]

RETRY_MAX_S: Final = 10.0
RETENTION_PAUSE_S: Final = 60.0
DAY_NS: Final = 86_400 * NS_PER_S
REPORT_S: Final = 1.0
"""Time between two words to the other gateways of a database."""
SETTLE_AFTER_S: Final = 15.0
"""After its end a window waits so long for what is known of its replica."""

_log = logging.getLogger(__name__)


class FeederStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The feeder at one moment. Totals are since it started."""

    running: bool
    segments: int
    """Log files on disk that are still needed."""
    lag_bytes: int
    """Written to the log, not read yet."""
    pending_rows: int
    """Read, not committed yet."""
    open_intents: int
    """Requests in flight, as the log shows them."""
    passes_total: int
    """Passes that read the log to its end: what was in it when one began is committed."""
    rows_total: int
    """Rows committed, lost ones included."""
    lost_total: int
    """Of these: requests whose writer died, or could not write their end."""
    repeated_total: int
    """Ends that were stored already, the same: seen again by a replay."""
    conflicting_total: int
    """Ends whose id was stored already with other values; the stored ones stay."""
    refused_total: int
    """Ends that the database cannot hold."""
    damaged_total: int
    """Places in the log that match no checksum, and segments that cannot be read."""
    unwritten_total: int
    """Ends that their writer could not write, as it told later."""
    error: str | None
    """What keeps the feeder from working now; it tries again by itself."""
    damage: str | None
    """The latest damage found in the log."""
    settled_until_utc_ns: int | None = None
    """Every window before this time has its GPU time shared out; None: no window yet."""
    attribution_error: str | None = None
    """What keeps windows from being settled; requests are stored all the same."""
    replica_times_dropped_total: int = 0
    """Stretches of replica time that came too late, or for which there was no room."""
    leads: bool = True
    """It shares GPU time out; of several gateways on one database one does."""
    gpu_minutes_error: str | None = None
    """What keeps minutes of GPUs from being stored; requests are stored all the same."""
    gpu_minutes_dropped_total: int = 0
    """Figures of minutes for which there was no room."""
    steps_total: int = 0
    """Steps that engines told of, for windows that were not settled."""
    steps_lost_total: int = 0
    """Steps that engines could not tell, as they said: their windows are estimated."""
    engine_requests_total: int = 0
    """Records of requests that engines told of."""
    engine_requests_lost_total: int = 0
    """Records of requests that engines could not tell, as they said."""
    engine_requests_error: str | None = None
    """What keeps such records from being read or stored now; all else goes on."""


class Feeder:
    """Feeds one ledger directory's log into its database; the only one to do so (DirectoryLock).

    With an `attribution` it also shares out the GPU time of replicas, of which `note_replicas` is
    told, to the requests that are stored: when the log is read to its end, a window at a time.

    `start` runs it in a thread; `step` does one bounded pass, for whoever has a loop of their own.
    While the database cannot be written (a full disk), `status().error` says so, the log keeps the
    records, and the feeder goes on trying.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        interval_s: float = 0.25,
        batch_rows: int = 5000,
        retention_days: int | None = None,
        nice: int = 5,
        attribution: AttributionConfig | None = None,
        open_store: Callable[[Path], LedgerStore] = SqliteStore,
        clock: Callable[[], float] = time.monotonic,
        utc_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Take the directory and open the database in it.

        Raises LedgerError where another gateway has the directory (with its pid) and where the
        database can never be used (it is none of ours, or of a newer Mileage). A full disk is no
        such case: opening is then tried again. `nice` is added to the niceness of the thread:
        beside a busy data plane on the same core it waits its turn, and still gets a share.
        """
        self._log_directory = log_directory(directory)
        self._database = Path(directory) / DATABASE_NAME
        self._interval_s, self._batch_rows, self._nice = interval_s, batch_rows, nice
        self.retention_days = retention_days
        """Read before each deletion: it may be set while the feeder runs. None or 0: keep all."""
        self._retention_at_s = float("-inf")
        self._attribution = attribution
        self._attributor: Attributor | None = None
        self._attribution_at_s = float("-inf")
        self._attribution_pause_s = interval_s
        self._attribution_error: str | None = None
        self._retention: Retention | None = None
        self._times = ReplicaTimes()
        self._steps = StepDirectory(Path(directory) / STEPS_NAME)
        self._engine_requests = EngineRequestFiles(Path(directory) / STEPS_NAME)
        self._gpu_minutes = GpuMinuteQueue(pause_s=interval_s, pause_max_s=RETRY_MAX_S)
        self._open_store, self._clock, self._utc_ns = open_store, clock, utc_ns
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._store: LedgerStore | None = None
        self._turn: int | None = None
        self._shared_settled_ns: int | None = None
        self._reported_ns, self._report_at_s = 0, float("-inf")
        self._follower: LogFollower | None = None
        self._error: str | None = None
        self._passes = 0
        self._lock = DirectoryLock(directory, setting="ledger.directory (--ledger-directory)")
        try:
            with suppress(OSError):
                remove_leftovers(self._log_directory, utc_ns())
            self._open()
        except LedgerError as error:
            if not may_pass(error) and not out_of_reach(error):
                self._lock.release()
                raise
            self._fail(error)

    def start(self) -> None:
        """Run in a thread until `stop`; the first passes replay what earlier gateways left."""
        self._thread = threading.Thread(target=self._run, name="ledger-feeder", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Feed what is in the log, stop, and let the directory go; after the workers have ended.

        False if that took longer than `timeout_s`: the rest stays in the log, for the next start.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _log.warning("the ledger's feeder is still busy after %.1f s", timeout_s)
                return False
            self._thread = None
        if self._follower is not None:
            self._leave(self._follower)
            self._follower.close()
        self._steps.close()
        self._lock.release()
        return True

    def note_replicas(self, stretches: Sequence[ReplicaTime]) -> None:
        """What was seen of replicas since the last call, at least every few seconds; from any
        thread. What comes more than SETTLE_AFTER_S after it was so may be too late."""
        self._times.note(stretches)

    def note_gpu_minutes(self, rows: Sequence[GpuMinute]) -> None:
        """Minutes of GPUs that have ended; from any thread. They are stored soon after."""
        self._gpu_minutes.note(rows)

    def step(self) -> bool:
        """One pass: feed what is there; else store minutes of GPUs; else settle a window; else
        retention. True if another one has work at once.

        Raises LedgerError or OSError; nothing is lost by it, the next pass tries again.
        """
        follower = self._open()
        now_utc_ns = self._utc_ns()  # what was dispatched by now is in the log
        if follower.step():
            return True
        self._passes += 1
        if (store := self._store) is not None and self._gpu_minutes.store(store, self._clock()):
            return True
        return (
            self._store_engine_requests(now_utc_ns)
            or self._settle(follower, now_utc_ns)
            or self._retain()
        )

    def status(self) -> FeederStatus:
        """The state now; may be called from any thread."""
        follower = self._follower
        tails = follower.tails if follower else []
        totals = follower.totals if follower else Totals()
        return FeederStatus(
            running=self._thread is not None and self._thread.is_alive(),
            segments=len(tails),
            lag_bytes=follower.lag_bytes if follower else 0,
            pending_rows=follower.pending_rows if follower else 0,
            open_intents=sum(len(tail.open) for tail in tails),
            passes_total=self._passes,
            rows_total=totals.rows,
            lost_total=totals.lost,
            repeated_total=totals.repeated,
            conflicting_total=totals.conflicting,
            refused_total=totals.refused,
            damaged_total=totals.damaged,
            unwritten_total=totals.unwritten,
            error=self._error,
            damage=follower.damage if follower else None,
            settled_until_utc_ns=self._settled_until_ns(),
            leads=self._turn is not None,
            attribution_error=self._attribution_error,
            replica_times_dropped_total=self._times.dropped_total,
            gpu_minutes_error=self._gpu_minutes.error,
            gpu_minutes_dropped_total=self._gpu_minutes.dropped_total,
            steps_total=self._steps.steps_total,
            steps_lost_total=self._steps.lost_total,
            engine_requests_total=self._engine_requests.requests_total,
            engine_requests_lost_total=self._engine_requests.lost_total,
            engine_requests_error=self._engine_requests.error,
        )

    def _open(self) -> LogFollower:
        if self._follower is None:
            self._store = self._open_store(self._database)
            if (config := self._attribution) is not None:
                self._attributor = Attributor(
                    self._store,
                    partial(ReplicaAttribution, config=config),
                    times=self._times,
                    window_s=config.window_s,
                    # Steps name requests as their gateway does, and lie beside one of several.
                    steps=self._steps if self._store.shared is None else None,
                )
            self._retention = Retention(self._store, booked_only=config is not None)
            self._follower = LogFollower(
                self._log_directory, self._store, batch_rows=self._batch_rows
            )
        return self._follower

    def _store_engine_requests(self, now_utc_ns: int) -> bool:
        """What engines told of requests, which they name as the gateway of this directory does."""
        store = self._store
        if store is None or store.shared is not None:
            return False
        return self._engine_requests.store(store, now_utc_ns)

    def _settle(self, follower: LogFollower, now_utc_ns: int) -> bool:
        """Settle a window, if one is over and all of its requests have ended."""
        config, attributor = self._attribution, self._attributor
        if config is None or attributor is None or self._clock() < self._attribution_at_s:
            return False
        try:
            self._take_turn(attributor)
            attributor.store_times()
            if self._stop.is_set():
                return False
            waited_ns = now_utc_ns - int(config.wait_max_s * NS_PER_S)
            horizon_ns = now_utc_ns - int(SETTLE_AFTER_S * NS_PER_S)
            open_ns = follower.oldest_open_utc_ns(waited_ns)
            if open_ns is not None:
                horizon_ns = min(horizon_ns, open_ns)
            horizon_ns = self._horizon_of_all(horizon_ns, waited_ns)
            more = self._turn is not None and attributor.step(horizon_ns, now_utc_ns)
        except Exception as error:  # requests are stored whatever becomes of their shares
            message = str(error) or repr(error)
            if message != self._attribution_error:
                foreseen = isinstance(error, LedgerError)
                _log.error("GPU time cannot be shared out: %s", message, exc_info=not foreseen)
            self._attribution_error = message
            self._attribution_at_s = self._clock() + self._attribution_pause_s
            self._attribution_pause_s = min(2 * self._attribution_pause_s, RETRY_MAX_S)
            return False
        if not attributor.failed:
            self._attribution_error = None
            self._attribution_pause_s = self._interval_s
        return more

    def _take_turn(self, attributor: Attributor) -> None:
        """Of several gateways one at a time shares GPU time out: this one, if nobody else does."""
        shared = self._store.shared if self._store is not None else None
        if shared is None:
            self._turn = 0
            return
        turn = shared.lead()
        if turn is None or turn != self._turn:
            attributor.forget()  # another one may have settled windows
        if (turn is None) != (self._turn is None):
            _log.info(
                "this gateway %s GPU time out", "does not share" if turn is None else "shares"
            )
        self._turn = turn
        self._times.forget()  # others tell of the same replicas

    def _horizon_of_all(self, horizon_ns: int, waited_ns: int) -> int:
        """Up to when all gateways of the database have stored what they dispatched."""
        shared = self._store.shared if self._store is not None else None
        now_s = self._clock()
        if shared is None or now_s < self._report_at_s:
            return min(horizon_ns, self._reported_ns) if shared is not None else horizon_ns
        self._reported_ns = shared.report(horizon_ns, waited_ns)
        self._shared_settled_ns = shared.settled_until_utc_ns()
        self._report_at_s = now_s + REPORT_S
        return self._reported_ns

    def _leave(self, follower: LogFollower) -> None:
        """Tell the other gateways not to wait for this one, if all of its records are stored."""
        shared = self._store.shared if self._store is not None else None
        if shared is not None and not follower.tails and not follower.pending_rows:
            with suppress(LedgerError):
                shared.end()

    def _settled_until_ns(self) -> int | None:
        if self._attributor is None or self._turn is None:
            return self._shared_settled_ns
        return self._attributor.settled_until_ns

    def _retain(self) -> bool:
        """Delete some of the rows that are past the retention, when it is time for it."""
        days = self.retention_days
        if not days or self._retention is None or self._stop.is_set():
            return False
        if self._clock() < self._retention_at_s:
            return False
        shared = self._store.shared if self._store is not None else None
        if shared is not None and shared.lead() is None:
            return False  # the gateway that leads does it
        if self._retention.step(self._utc_ns() - days * DAY_NS):
            return True
        self._retention_at_s = self._clock() + RETENTION_PAUSE_S
        return False

    def _run(self) -> None:
        with suppress(OSError):
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + self._nice
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        pause_s = self._interval_s
        while True:
            stopping = self._stop.is_set()  # asked before the pass, so that the last one sees all
            more = False
            try:
                more = self.step()
            except Exception as error:  # whatever happens in one pass, the thread outlives it
                self._fail(error)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
            else:
                pause_s = self._interval_s
                if self._error is not None:
                    _log.warning("the ledger's feeder works again")
                    self._error = None
            if more:
                continue
            if stopping:
                return
            self._stop.wait(pause_s)

    def _fail(self, error: Exception) -> None:
        message = str(error) or repr(error)
        if message != self._error:
            foreseen = isinstance(error, LedgerError | OSError)
            _log.error("the ledger cannot be fed: %s", message, exc_info=not foreseen)
        self._error = message
