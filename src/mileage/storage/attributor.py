"""Attributor: the pass that shares GPU time out to the requests that are stored, and books it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from mileage.storage.connection import Connection, Transactions
from mileage.storage.replica_times import ReplicaTimes, Stretch, stretch_of
from mileage.storage.request_rows import ATTRIBUTED_FIELDS, NS_PER_S
from mileage.storage.usage_tables import UsageTables
from mileage.storage.window_books import Sharing, StepTotals, WindowBooks

__all__ = ["ALL", "Attributor", "StepSource"]

ALL: Final = ""
"""In the table `settled`: up to here every replica is."""
DARK_ROWS: Final = 5000
"""Requests of one step over time in which nobody saw their replica."""

_FIELDS: Final = ", ".join(ATTRIBUTED_FIELDS)
_TO_BOOK: Final = "requests INDEXED BY requests_to_book WHERE booked < 2"
_ROWS: Final = (
    f"SELECT {_FIELDS} FROM {_TO_BOOK} "  # noqa: S608
    "AND replica = ? AND arrived_at_utc_ns < ? ORDER BY arrived_at_utc_ns"
)
_ROWS_WITHOUT: Final = (
    f"SELECT {_FIELDS} FROM {_TO_BOOK} "  # noqa: S608
    f"AND replica IS ? AND arrived_at_utc_ns < ? LIMIT {DARK_ROWS}"
)
_NTH_ARRIVAL: Final = (
    f"SELECT arrived_at_utc_ns FROM {_TO_BOOK} AND replica = ? "  # noqa: S608
    f"AND arrived_at_utc_ns >= ? ORDER BY arrived_at_utc_ns LIMIT 1 OFFSET {DARK_ROWS}"
)
_FIRST_ARRIVAL: Final = f"SELECT min(arrived_at_utc_ns) FROM {_TO_BOOK} AND replica = ?"  # noqa: S608
_FIRST_SEEN: Final = "SELECT min(from_utc_ns) FROM replica_time WHERE replica = ?"
_NEXT_SEEN: Final = f"{_FIRST_SEEN} AND from_utc_ns >= ?"
# With what is seen of them that is not settled.
_SEEN: Final = """
    SELECT DISTINCT replica FROM replica_time AS t WHERE from_utc_ns < ? AND until_utc_ns >
    coalesce((SELECT until_utc_ns FROM settled AS s WHERE s.replica = t.replica), -1)
"""
# One look-up per replica: the index has them in order.
_REPLICAS: Final = f"""
    WITH RECURSIVE names(name) AS (
        SELECT min(replica) FROM {_TO_BOOK}
        UNION ALL
        SELECT (SELECT min(replica) FROM {_TO_BOOK} AND replica > name) FROM names
        WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name IS NOT NULL AND name != ''
"""  # noqa: S608
_SETTLE: Final = (
    "INSERT INTO settled VALUES (?, ?) ON CONFLICT (replica) DO UPDATE "
    "SET until_utc_ns = excluded.until_utc_ns"
)
_STATE: Final = (
    "INSERT INTO attribution_state VALUES (?, ?) ON CONFLICT (replica) DO UPDATE "
    "SET blob = excluded.blob"
)


class StepSource(Protocol):
    """What engines told of their steps."""

    def totals(self, replica: str, start_ns: int, end_ns: int) -> StepTotals:
        """Of those that overlap the window."""
        ...

    def settled(self, replica: str, until_ns: int) -> None:
        """The windows before this time will not be asked for again."""
        ...


class Attributor:
    """Settles one window of one replica after the other.

    All that a window changes (its requests, both roll-ups, how far the replica is settled, what
    was learned of its steps) is one transaction: whenever the process dies, a window is settled
    or it is not. The database is the only state, so a new Attributor goes on where one was
    killed. For one thread.
    """

    def __init__(
        self,
        store: Transactions,
        sharing: Callable[[str], Sharing],
        *,
        times: ReplicaTimes,
        window_s: int = 20,
        steps: StepSource | None = None,
    ) -> None:
        """`sharing` makes what shares out a replica's windows; `window_s` divides an hour."""
        self._store, self._new_sharing, self._steps = store, sharing, steps
        self._times = times
        self._window_ns = window_s * NS_PER_S
        self._sharing: dict[str, Sharing] = {}
        self._states: dict[str, bytes] = {}
        self._tables = UsageTables()
        self._settled: dict[str, int] | None = None
        self._queue: deque[str] = deque()
        self._target_ns = 0
        self._failed = False

    @property
    def settled_until_ns(self) -> int | None:
        """Every window before this time is settled; nanoseconds since 1970."""
        return None if self._settled is None else self._settled.get(ALL)

    @property
    def failed(self) -> bool:
        """A replica could not be settled since all were tried last."""
        return self._failed

    def forget(self) -> None:
        """Another gateway may have settled windows: what is known of the database may be old."""
        self._settled = None
        self._queue.clear()
        self._sharing.clear()
        self._states.clear()
        self._tables.forget()

    def store_times(self) -> None:
        """Store the stretches that wait. Raises LedgerError; then they still wait."""
        if len(self._times):
            settled = self._load()
            with self._store.transaction() as connection:
                done = self._times.store(connection, lambda replica: settled.get(replica, 0))
            done()

    def step(self, horizon_ns: int, now_ns: int) -> bool:
        """Settle one window that ends at `horizon_ns` at the latest; True if there may be more.

        `horizon_ns`: each request that was dispatched before is stored, or given up. Raises
        LedgerError, and whatever the sharing raises: then nothing has changed, and the next call
        goes on with another replica.
        """
        settled = self._load()
        if not self._queue:
            target_ns = self._floor(horizon_ns)
            if target_ns <= settled.get(ALL, 0):
                return False
            self._target_ns = target_ns
            return self._plan()
        replica = self._queue.popleft()
        try:
            reached_ns = self._settle(replica, now_ns)
        except BaseException:
            self._sharing.pop(replica, None)  # it may have learned what was not booked
            self._states.pop(replica, None)
            self._failed = True
            raise
        if reached_ns < self._target_ns:
            self._queue.append(replica)
        elif not self._queue:
            self._finish()
        return True

    def _plan(self) -> bool:
        """Queue the replicas that have something to settle up to the target."""
        if self._book_without_replica():
            return True
        settled = self._load()
        with self._store.transaction() as connection:
            names = {name for (name,) in connection.execute(_REPLICAS)}
            names |= {name for (name,) in connection.execute(_SEEN, (self._target_ns,)) if name}
        due = sorted((settled.get(name, 0), name) for name in names)
        self._queue.extend(name for until_ns, name in due if until_ns < self._target_ns)
        self._sharing = {name: one for name, one in self._sharing.items() if name in names}
        self._states = {name: one for name, one in self._states.items() if name in names}
        self._failed = False
        if not self._queue:
            self._finish()
        return bool(self._queue)

    def _finish(self) -> None:
        """Every replica is settled up to the target, unless one failed: then it is tried again."""
        if not self._failed:
            with self._store.transaction() as connection:
                connection.execute(_SETTLE, (ALL, self._target_ns))
            self._load()[ALL] = self._target_ns

    def _book_without_replica(self) -> bool:
        """Count some of the requests that no replica ever had; True if there may be more."""
        target_ns = self._target_ns
        with self._booking() as (connection, books):
            rows = [
                row
                for none in (None, "")
                for row in connection.execute(_ROWS_WITHOUT, (none, target_ns))
            ]
            if rows:
                books.add(
                    rows,
                    replica="",
                    start_ns=target_ns,
                    end_ns=target_ns,
                    now_ns=target_ns,
                    stretch=Stretch(),
                    sharing=None,
                )
        return len(rows) >= DARK_ROWS

    def _settle(self, replica: str, now_ns: int) -> int:
        """Settle the replica's next window, or some of the time in which nobody saw it; where that
        ends, nanoseconds since 1970."""
        settled = self._load()
        with self._booking() as (connection, books):
            start_ns = settled.get(replica)
            if start_ns is None:
                start_ns = self._floor(_first(connection, replica))
            if start_ns >= self._target_ns:
                return start_ns
            end_ns = self._floor(start_ns) + self._window_ns
            stretch = stretch_of(connection, replica, start_ns, end_ns)
            if not stretch.observed_ns:
                end_ns = max(end_ns, self._dark_until_ns(connection, replica, start_ns, end_ns))
            sharing = self._sharing_of(connection, replica) if stretch.up_ns else None
            told = sharing is not None and self._steps is not None
            books.add(
                connection.execute(_ROWS, (replica, end_ns)).fetchall(),
                replica=replica,
                start_ns=start_ns,
                end_ns=end_ns,
                now_ns=now_ns,
                stretch=stretch,
                sharing=sharing,
                totals=self._steps.totals(replica, start_ns, end_ns)
                if told and self._steps is not None
                else None,
            )
            connection.execute(_SETTLE, (replica, end_ns))
            state = b"" if sharing is None else sharing.state()
            if sharing is not None and state != self._states.get(replica):
                connection.execute(_STATE, (replica, state))
        if sharing is not None:
            self._states[replica] = state
        settled[replica] = end_ns
        if self._steps is not None:
            self._steps.settled(replica, end_ns)
        return end_ns

    def _dark_until_ns(
        self, connection: Connection, replica: str, start_ns: int, end_ns: int
    ) -> int:
        """Until when nobody saw the replica, or less: so that there are not too many requests."""
        seen_ns = connection.execute(_NEXT_SEEN, (replica, end_ns)).fetchone()[0]
        until_ns = self._target_ns if seen_ns is None else min(self._target_ns, seen_ns)
        nth = connection.execute(_NTH_ARRIVAL, (replica, start_ns)).fetchone()
        return self._floor(until_ns if nth is None else min(until_ns, nth[0]))

    def _sharing_of(self, connection: Connection, replica: str) -> Sharing:
        sharing = self._sharing.get(replica)
        if sharing is None:
            sharing = self._new_sharing(replica)
            row = connection.execute(
                "SELECT blob FROM attribution_state WHERE replica = ?", (replica,)
            ).fetchone()
            if row is not None:
                sharing.restore(row[0])
                self._states[replica] = row[0]
            self._sharing[replica] = sharing
        return sharing

    @contextmanager
    def _booking(self) -> Iterator[tuple[Connection, WindowBooks]]:
        """A transaction that ends with writing the books; all of it or nothing."""
        books = WindowBooks(self._store.path)
        try:
            with self._store.transaction() as connection:
                yield connection, books
                self._tables.write(connection, books)
        except BaseException:
            self._tables.forget()
            raise

    def _load(self) -> dict[str, int]:
        """How far each replica is settled."""
        if self._settled is None:
            with self._store.transaction() as connection:
                self._settled = dict(connection.execute("SELECT * FROM settled").fetchall())
        return self._settled

    def _floor(self, utc_ns: int) -> int:
        return utc_ns - utc_ns % self._window_ns


def _first(connection: Connection, replica: str) -> int:
    """When the replica had its first request, or was seen first."""
    found = [
        connection.execute(sql, (replica,)).fetchone()[0] for sql in (_FIRST_ARRIVAL, _FIRST_SEEN)
    ]
    return min(int(at) for at in found if at is not None)
