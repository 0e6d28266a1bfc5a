"""UsageReader: who used what GPU time, and how much there was, out of the ledger's roll-ups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from mileage.core.timeline import RequestTimeline
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.replica_attribution import ReplicaAttribution
from mileage.ledger.usage_row import CapacityRow, UsageRow
from mileage.storage.attributor import ALL
from mileage.storage.engine_requests import EngineFigures, engine_figures
from mileage.storage.open_ledger import open_ledger
from mileage.storage.provisional import Tail, provisional_tail
from mileage.storage.request_rows import ATTRIBUTED_FIELDS, NS_PER_S, timeline_of
from mileage.storage.sqlite import ledger_errors
from mileage.storage.usage_schema import CAPACITY_COLUMNS, USAGE_COLUMNS, USAGE_TEXTS
from mileage.storage.usage_verify import UsageVerdict, verify_usage
from mileage.storage.window_books import HOUR_S, Sharing, hour_of

__all__ = ["AttributedRequest", "Gap", "Span", "UsageReader"]

_FETCH_ROWS: Final = 1000
_MINUTE_S: Final = 60
_BOOKED: Final = len(ATTRIBUTED_FIELDS) - 1
_SHARE: Final = _BOOKED - 5
_ARRIVED: Final = ATTRIBUTED_FIELDS.index("arrived_at_utc_ns")
_CHARGED: Final = "charged_nano_usd"

_Row = TypeVar("_Row", UsageRow, CapacityRow)


class Span(NamedTuple):
    """The time that rows are of, seconds since 1970: what was asked for, in whole minutes, or in
    whole hours where only these are kept (`whole_hours`). A minute that is not all settled yet is
    there to its end, so that `provisional` goes on where it is settled. Spans that follow one on
    the other have every minute once."""

    since_utc_s: int
    until_utc_s: int
    whole_hours: bool


class Gap(NamedTuple):
    """Time between two stretches in which a replica was seen: nobody knows what it did."""

    replica: str
    from_utc_ns: int
    until_utc_ns: int


class AttributedRequest(msgspec.Struct, frozen=True, gc=False):
    """One request and its GPU time; None where nobody saw its replica, or it never had one."""

    request: RequestTimeline
    settled: bool
    """All of its windows are settled: this is what it had. Else what it had so far."""
    gpu_ns: int | None
    low_ns: int | None
    high_ns: int | None
    prefill_ns: int | None
    recomputed_ns: int | None
    later_ns: int
    """Of `gpu_ns`: in later hours than that of its arrival."""


class UsageReader:
    """Reads a ledger that a gateway may be writing to. Every method raises LedgerError.

    Rows are of settled windows, in which nothing changes any more, save counts of requests that
    come late; `provisional` tells what would be settled of the time after these.
    """

    def __init__(
        self,
        directory: str | Path,
        attribution: AttributionConfig | None = None,
        *,
        sharing: Callable[[str], Sharing] | None = None,
    ) -> None:
        """Open the database in the ledger directory; LedgerError where there is none.

        `attribution`: that of the gateway. `sharing`: what shares out a replica's windows in place
        of ReplicaAttribution.
        """
        self.path, self._connection = open_ledger(directory)
        self._config = config = attribution or AttributionConfig()
        self._sharing = sharing or partial(ReplicaAttribution, config=config)
        self._in_snapshot = False

    def close(self) -> None:
        """Close the connection; twice is fine."""
        with ledger_errors(self.path):
            self._connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read in the block is of one moment, whatever is settled meanwhile: else a
        window could be missing, or be in the rows and in what is provisional."""
        with ledger_errors(self.path):
            self._connection.execute("BEGIN")
        self._in_snapshot = True
        try:
            yield
        finally:
            self._in_snapshot = False
            with ledger_errors(self.path):
                self._connection.execute("ROLLBACK")

    def settled_until_utc_s(self) -> int | None:
        """Every window before this time is settled; None: no window yet."""
        found = self._one("SELECT until_utc_ns FROM settled WHERE replica = ?", ALL)
        return None if found is None else int(found) // NS_PER_S

    def first_hour_utc_s(self) -> int | None:
        """The first hour of which there are rows; None: there are none."""
        found = self._one(
            "SELECT min(hour) FROM (SELECT min(hour_at_utc_s) AS hour FROM usage_hours "
            "UNION ALL SELECT min(hour_at_utc_s) FROM capacity_hours)"
        )
        return None if found is None else int(found)

    def span(self, since_utc_s: float, until_utc_s: float) -> Span:
        """The time that `usage` and `capacity` really are of, for these bounds."""
        settled = self.settled_until_utc_s() or 0
        ends = (self._end(int(since_utc_s), settled), self._end(int(until_utc_s), settled))
        return Span(ends[0][0], ends[1][0], ends[0][1] or ends[1][1])

    def usage(
        self,
        since_utc_s: float,
        until_utc_s: float,
        *,
        by: Collection[str] = USAGE_TEXTS,
        as_of_utc_s: int | None = None,
    ) -> Iterator[UsageRow]:
        """What was used in `span(since_utc_s, until_utc_s)`, by hour, replica and the texts that
        are named; the others are empty, and added up. Part of an hour is a row of that hour.
        `as_of_utc_s`: hours are added up, too, to few rows that have this time in place of theirs.
        """
        unknown = set(by) - set(USAGE_TEXTS)
        if unknown:
            raise ValueError(f"{sorted(unknown)} are no texts of UsageRow: {USAGE_TEXTS}")
        kept = {"replica", *by}
        names = {name: name if name in kept else "''" for name in USAGE_TEXTS}
        sums = {name: f"sum({name})" for name in (*USAGE_COLUMNS, _CHARGED)}
        yield from self._rows(UsageRow, "usage", names, sums, since_utc_s, until_utc_s, as_of_utc_s)

    def capacity(self, since_utc_s: float, until_utc_s: float) -> Iterator[CapacityRow]:
        """What there was in `span(since_utc_s, until_utc_s)`, by hour and replica."""
        sums = {name: f"sum({name})" for name in CAPACITY_COLUMNS}
        sums |= {"gpu": "max(gpu)", "gpus": "max(gpus)"}
        yield from self._rows(
            CapacityRow, "capacity", {"replica": "replica"}, sums, since_utc_s, until_utc_s
        )

    def requests(
        self, since_utc_s: float, until_utc_s: float, tail: Tail | None = None
    ) -> Iterator[AttributedRequest]:
        """The requests that arrived in this time, in that order, and what they had; `tail` adds
        what is provisional. Those deleted by now are in the roll-ups alone."""
        later = "coalesce((SELECT sum(h.gpu_ns) FROM request_hours AS h WHERE request_id = id), 0)"
        more = tail.requests if tail is not None else {}
        sql = (
            f"SELECT {', '.join(ATTRIBUTED_FIELDS)}, {later} FROM requests "  # noqa: S608
            "WHERE (arrived_at_utc_ns, id) > (?, ?) AND arrived_at_utc_ns < ? "
            f"ORDER BY arrived_at_utc_ns, id LIMIT {_FETCH_ROWS}"
        )
        # Piece by piece, as the answer of a server is in memory: each from where the last ended.
        after, until_ns = (round(since_utc_s * NS_PER_S), -1), round(until_utc_s * NS_PER_S)
        while True:
            rows = list(self._cursor(sql, (*after, until_ns)))
            for row in rows:
                values: list[Any] = [*more.get(row[0], row[_SHARE:_BOOKED]), row[-1]]
                yield AttributedRequest(timeline_of(row, self.path), row[_BOOKED] == 2, *values)
            if len(rows) < _FETCH_ROWS:
                return
            after = rows[-1][_ARRIVED], rows[-1][0]

    def engine_figures(self, ids: Sequence[int]) -> dict[int, EngineFigures]:
        """What engines said of these requests, of those of which they did; by id."""
        with ledger_errors(self.path):
            return engine_figures(self._connection, ids)

    def gaps(self, since_utc_s: float, until_utc_s: float) -> list[Gap]:
        """When replicas that were seen before and after were not seen, as far back as there are
        records (`ledger.retention_days`)."""
        rows = self._cursor(
            """
            SELECT replica, before, from_utc_ns FROM (
                SELECT replica, from_utc_ns, lag(until_utc_ns) OVER
                    (PARTITION BY replica ORDER BY from_utc_ns) AS before FROM replica_time
            ) WHERE before < from_utc_ns AND from_utc_ns > ? AND before < ?
            ORDER BY before, replica
            """,
            (round(since_utc_s * NS_PER_S), round(until_utc_s * NS_PER_S)),
        )
        return [Gap(*row) for row in rows]

    def provisional(self, since_utc_s: float, until_utc_s: float) -> Tail:
        """What settling would make of the time from what is settled to `until_utc_s`, of the part
        from `since_utc_s` on, if the requests in flight had nothing of it: they are not on record
        yet, so their time is idle here, or that of others. Nothing is written."""
        with ledger_errors(self.path):
            return provisional_tail(
                self._connection,
                self.path,
                self._sharing,
                self._config.window_s,
                round(since_utc_s * NS_PER_S),
                round(until_utc_s * NS_PER_S),
                in_transaction=self._in_snapshot,
            )

    def verify(self) -> UsageVerdict:
        """Prove the sums; reads the whole database."""
        with ledger_errors(self.path):
            return verify_usage(self._connection)

    def _end(self, utc_s: int, settled_utc_s: int) -> tuple[int, bool]:
        """The bound that is really read, and whether it is an hour in place of a minute."""
        if utc_s >= settled_utc_s:
            utc_s = -(-utc_s // _MINUTE_S) * _MINUTE_S
        hour = hour_of(utc_s)
        if utc_s == hour:
            return hour, False
        of_hours = self._one(
            "SELECT EXISTS (SELECT 1 FROM usage_hours WHERE hour_at_utc_s = ?1) "
            "OR EXISTS (SELECT 1 FROM capacity_hours WHERE hour_at_utc_s = ?1)",
            hour,
        )
        of_minutes = self._one(
            "SELECT EXISTS (SELECT 1 FROM usage_minutes WHERE minute_at_utc_s BETWEEN ?1 AND ?2) "
            "OR EXISTS (SELECT 1 FROM capacity_minutes WHERE minute_at_utc_s BETWEEN ?1 AND ?2)",
            hour,
            hour + HOUR_S - 1,
        )
        if of_hours and not of_minutes:
            return hour, True
        return utc_s - utc_s % _MINUTE_S, False

    def _rows(
        self,
        kind: type[_Row],
        table: str,
        names: dict[str, str],
        sums: dict[str, str],
        since_utc_s: float,
        until_utc_s: float,
        as_of_utc_s: int | None = None,
    ) -> Iterator[_Row]:
        span = self.span(since_utc_s, until_utc_s)
        first, last = hour_of(span.since_utc_s + HOUR_S - 1), hour_of(span.until_utc_s)
        parts = [("hour", first, last)]
        if first > last:  # both within one hour
            parts = [("minute", span.since_utc_s, span.until_utc_s)]
        else:
            if span.since_utc_s < first:
                parts.insert(0, ("minute", span.since_utc_s, first))
            if last < span.until_utc_s:
                parts.append(("minute", last, span.until_utc_s))
        for unit, since, until in parts:
            at = f"{unit}_at_utc_s"
            hour = at if unit == "hour" else f"{at} / {HOUR_S} * {HOUR_S}"
            if as_of_utc_s is not None:
                hour = f"CAST({as_of_utc_s:d} AS INTEGER)"  # a bare number would name a column
            texts = [name for name, text in names.items() if name == text]
            alike = hour == "hour_at_utc_s" and len(texts) == len(names)
            values = list(sums) if alike else list(sums.values())
            order = f"{hour}, {', '.join(texts)}"
            grouped = "" if alike else f"GROUP BY {order} "
            sql = (
                f"SELECT {hour}, {', '.join(names.values())}, {', '.join(values)} "  # noqa: S608
                f"FROM {table}_{unit}s WHERE {at} >= ? AND {at} < ? {grouped}ORDER BY {order}"
            )
            fields = ("hour_at_utc_s", *names, *sums)
            for row in self._cursor(sql, (since, until)):
                yield kind(**dict(zip(fields, row, strict=True)))

    def _cursor(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with ledger_errors(self.path):
            cursor = self._connection.execute(sql, parameters)
        while True:
            with ledger_errors(self.path):
                rows = cursor.fetchmany(_FETCH_ROWS)
            if not rows:
                return
            yield from rows

    def _one(self, sql: str, *parameters: Any) -> Any:
        with ledger_errors(self.path):
            row = self._connection.execute(sql, parameters).fetchone()
        return None if row is None else row[0]
