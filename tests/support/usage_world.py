"""A ledger with requests and replicas of some hours, whose GPU time is shared out step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mileage.core.timeline import RequestTimeline
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.replica_time import ReplicaState, ReplicaTime
from mileage.ledger.window_shares import RequestShare, WindowShares
from mileage.storage.attributor import Attributor, StepSource
from mileage.storage.open_ledger import open_ledger
from mileage.storage.replica_times import ReplicaTimes
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from mileage.storage.usage_verify import UsageVerdict, verify_usage
from tests.support.ledger_records import store_ends

__all__ = ["HOUR_UTC_S", "EvenSharing", "UsageWorld", "at_ns", "ran"]

HOUR_UTC_S = 1_764_428_400
"""Start of an hour."""
_NS = 1_000_000_000


def at_ns(second: float) -> int:
    """Nanoseconds since 1970 of a second of the hour."""
    return HOUR_UTC_S * _NS + round(second * _NS)


def ran(
    number: int, arrived: float, lasted: float | None, *, replica: str | None = "a", **changes: Any
) -> RequestTimeline:
    """A request that its replica had for `lasted` seconds from its arrival, second `arrived` of
    the hour; None: it never had it."""
    fields: dict[str, Any] = {
        "tenant": f"team-{number % 3}",
        "model": "smollm2",
        "endpoint": "chat",
        "stream": False,
        "outcome": "ok",
        "status": 200,
        "attempts": 1,
        "prompt_tokens": 100,
        "cached_tokens": 40,
        "output_tokens": 7,
    }
    arrived_at_utc_ns = at_ns(arrived)
    return RequestTimeline(
        **{
            "id": ((arrived_at_utc_ns // 1000) << 6) + number,
            "arrived_at_utc_ns": arrived_at_utc_ns,
            "replica": replica,
            "dispatched_s": None if lasted is None else 0.0,
            "finished_s": 0.0 if lasted is None else lasted,
            **fields,
            **changes,
        }
    )


class EvenSharing:
    """Half of what there is goes to the requests in equal parts, one nanosecond more to the first
    for each window it has shared out: so a window that is shared out twice shows."""

    def __init__(self, replica: str) -> None:
        self.replica, self.windows = replica, 0
        self.fail = False

    def window(
        self,
        start_at_utc_ns: int,
        end_at_utc_ns: int,
        *,
        gpus: float,
        up_ns: int,
        warmup_ns: int,
        requests: Sequence[RequestTimeline],
        steps: Sequence[EngineStep] = (),
        busy_ns: int | None = None,
        step_count: int | None = None,
    ) -> WindowShares:
        """Share the window out."""
        if self.fail:
            raise ZeroDivisionError
        self.windows += 1
        capacity, warmup = round(up_ns * gpus), round(warmup_ns * gpus)
        each = (capacity - warmup) // 2 // len(requests) if requests else 0
        more = min(self.windows, each)
        shares = tuple(
            RequestShare(
                r.id, each + more * (i == 0), each // 2, each // 4, each // 2, 2 * each + more
            )
            for i, r in enumerate(requests)
        )
        given = sum(share.gpu_ns for share in shares)
        return WindowShares(
            self.replica,
            start_at_utc_ns,
            end_at_utc_ns,
            capacity,
            shares,
            capacity - warmup - given,
            warmup,
            "meter",
        )

    def state(self) -> bytes:
        """Windows so far."""
        return b"%d" % self.windows

    def restore(self, state: bytes, /) -> None:
        """Go on."""
        self.windows = int(state)


class UsageWorld:
    """One ledger directory, and what feeds and settles it, as a feeder would."""

    def __init__(
        self, directory: Path, *, sharing: Any = EvenSharing, steps: StepSource | None = None
    ) -> None:
        self.directory, self._sharing, self._steps = directory, sharing, steps
        self.open()

    def open(self) -> None:
        """As after a start: nothing but the database is known."""
        self.store = SqliteStore(self.directory / DATABASE_NAME)
        self.times = ReplicaTimes()
        self.attributor = Attributor(self.store, self._sharing, times=self.times, steps=self._steps)

    def close(self) -> None:
        """As when the process ends."""
        self.store.close()

    def ends(self, *timelines: RequestTimeline) -> None:
        """Store the ends of requests."""
        store_ends(self.store, timelines)

    def seen(
        self,
        begin: float,
        end: float,
        *,
        replica: str = "a",
        state: ReplicaState = "up",
        gpus: float = 1.0,
    ) -> None:
        """The replica was in this state between the two seconds of the hour."""
        self.times.note([ReplicaTime(replica, at_ns(begin), at_ns(end), gpus, "h100", state)])

    def settle(self, until: float, *, steps_max: int | None = None) -> int:
        """Settle up to a second of the hour; how many steps that took."""
        self.attributor.store_times()
        steps = 0
        while steps != steps_max and self.attributor.step(at_ns(until), at_ns(until + 15)):
            steps += 1
        return steps

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """What the database says."""
        _, connection = open_ledger(self.directory)
        with closing(connection):
            return connection.execute(sql, tuple(parameters)).fetchall()

    def verdict(self) -> UsageVerdict:
        """What `verify` says."""
        _, connection = open_ledger(self.directory)
        with closing(connection):
            return verify_usage(connection)
