"""ReplicaTimes: what is on record of when each replica was up, warming up or down."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage.ledger.replica_time import ReplicaTime
from mileage.storage.connection import Connection

__all__ = ["PENDING_MAX", "ReplicaTimes", "Stretch", "stretch_of"]

PENDING_MAX: Final = 10_000
"""Stretches that wait for the database; beyond, the oldest are dropped and counted."""

_FIELDS: Final = ", ".join(ReplicaTime.__struct_fields__)


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """What was on record of one replica in one window."""

    gpus: float = 0.0
    """Mean over the time in which it held GPUs."""
    gpu: str = ""
    last_gpus: float = 1.0
    observed_ns: int = 0
    """Time of which the state is on record."""
    up_ns: int = 0
    """Of it: up or warming up."""
    warmup_ns: int = 0


class ReplicaTimes:
    """Takes stretches from any thread, and stores them from one.

    A stretch that goes on where the one before ended, in the same state, makes that one longer, so
    there is a row per change. What overlaps a time that is stored, or that is settled already, is
    cut off: nothing that a bill rests on changes afterwards.
    """

    def __init__(self) -> None:
        self._pending: deque[ReplicaTime] = deque()
        self._lock = threading.Lock()
        self._last: dict[str, ReplicaTime | None] = {}
        self.dropped_total = 0
        """Stretches that there was no room for, or that came for a settled time."""

    def note(self, stretches: Sequence[ReplicaTime]) -> None:
        """Take stretches, in the order of time for each replica; may be called from any thread."""
        with self._lock:
            self._pending.extend(stretches)
            while len(self._pending) > PENDING_MAX:
                self._pending.popleft()
                self.dropped_total += 1

    def forget(self) -> None:
        """Another gateway may have stored stretches of the same replicas."""
        self._last.clear()

    def __len__(self) -> int:
        return len(self._pending)

    def store(
        self, connection: Connection, settled_until_ns: Callable[[str], int]
    ) -> Callable[[], None]:
        """Store what waits, within the caller's transaction; call what this returns when that is
        committed: until then all of it still waits."""
        with self._lock:
            taken = list(self._pending)
        last: dict[str, ReplicaTime | None] = {}
        dropped = 0
        for stretch in taken:
            name = stretch.replica
            before = last[name] if name in last else self._latest(connection, name)
            kept = _cut(stretch, before, settled_until_ns(name))
            if kept is None:
                dropped += 1
                last[name] = before
                continue
            last[name] = _add(connection, kept, before)

        def committed() -> None:
            with self._lock:
                gone = set(map(id, taken))
                while self._pending and id(self._pending[0]) in gone:
                    self._pending.popleft()
            self._last.update(last)
            self.dropped_total += dropped

        return committed

    def _latest(self, connection: Connection, replica: str) -> ReplicaTime | None:
        if replica not in self._last:
            row = connection.execute(
                f"SELECT {_FIELDS} FROM replica_time WHERE replica = ? "  # noqa: S608
                "ORDER BY from_utc_ns DESC LIMIT 1",
                (replica,),
            ).fetchone()
            self._last[replica] = None if row is None else ReplicaTime(*row)
        return self._last[replica]


def stretch_of(connection: Connection, replica: str, start_ns: int, end_ns: int) -> Stretch:
    """What is on record of the replica between the two times, nanoseconds since 1970."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM replica_time "  # noqa: S608
        "WHERE replica = ? AND from_utc_ns < ? ORDER BY from_utc_ns DESC",
        (replica, end_ns),
    )
    observed = up = warmup = 0
    gpus: dict[float, int] = {}
    gpu, last_gpus = "", None
    for time in map(_time, rows):
        if time.until_utc_ns <= start_ns:
            break
        length = min(time.until_utc_ns, end_ns) - max(time.from_utc_ns, start_ns)
        observed += length
        gpu = gpu or time.gpu
        last_gpus = time.gpus if last_gpus is None else last_gpus
        if time.state != "down":
            up += length
            gpus[time.gpus] = gpus.get(time.gpus, 0) + length
        if time.state == "warmup":
            warmup += length
    return Stretch(
        gpus=_mean(gpus),
        gpu=gpu,
        last_gpus=1.0 if last_gpus is None else last_gpus,
        observed_ns=observed,
        up_ns=up,
        warmup_ns=warmup,
    )


def _time(row: tuple[Any, ...]) -> ReplicaTime:
    return ReplicaTime(*row)


def _mean(lengths_ns: Mapping[float, int]) -> float:
    """The mean of the keys, weighed by the values; a single key itself."""
    if len(lengths_ns) == 1:
        return next(iter(lengths_ns))
    total_ns = sum(lengths_ns.values())
    return sum(gpus * ns for gpus, ns in lengths_ns.items()) / total_ns if total_ns else 0.0


def _cut(time: ReplicaTime, before: ReplicaTime | None, settled_ns: int) -> ReplicaTime | None:
    """What of the stretch is neither stored nor settled yet; None: nothing."""
    from_ns = max(time.from_utc_ns, settled_ns)
    if before is not None:
        from_ns = max(from_ns, before.until_utc_ns)
    if from_ns >= time.until_utc_ns:
        return None
    return msgspec.structs.replace(time, from_utc_ns=from_ns)


def _add(connection: Connection, time: ReplicaTime, before: ReplicaTime | None) -> ReplicaTime:
    """Store the stretch, as a part of the one before where it goes on with it."""
    if before is not None and time.from_utc_ns == before.until_utc_ns and _alike(time, before):
        connection.execute(
            "UPDATE replica_time SET until_utc_ns = ? WHERE replica = ? AND from_utc_ns = ?",
            (time.until_utc_ns, time.replica, before.from_utc_ns),
        )
        return msgspec.structs.replace(before, until_utc_ns=time.until_utc_ns)
    marks = ", ".join("?" * len(ReplicaTime.__struct_fields__))
    connection.execute(
        f"INSERT INTO replica_time ({_FIELDS}) VALUES ({marks})",  # noqa: S608
        msgspec.structs.astuple(time),
    )
    return time


def _alike(one: ReplicaTime, other: ReplicaTime) -> bool:
    return (one.state, one.gpus, one.gpu) == (other.state, other.gpus, other.gpu)
