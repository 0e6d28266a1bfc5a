"""What settling would make of the time that is not settled yet; nothing of it is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mileage.ledger.usage_row import CapacityRow, UsageRow
from mileage.storage.connection import Connection
from mileage.storage.replica_times import Stretch, stretch_of
from mileage.storage.request_rows import ATTRIBUTED_FIELDS, NS_PER_S, Row
from mileage.storage.usage_schema import CAPACITY_COLUMNS, USAGE_COLUMNS, USAGE_TEXTS
from mileage.storage.window_books import Sharing, UsageKey, WindowBooks, hour_of

__all__ = ["TAIL_MAX_S", "Tail", "provisional_tail"]

TAIL_MAX_S: Final = 7200
"""After what is settled no more than this is looked at: longer, and the pass itself is behind."""
_UNSEEN_S: Final = 60
"""And no more than this after replicas were seen last: the gateway has not run since."""

_SHARE: Final = ATTRIBUTED_FIELDS.index("attributed_ns")
_ARRIVED: Final = ATTRIBUTED_FIELDS.index("arrived_at_utc_ns")
_FIELDS: Final = ", ".join(ATTRIBUTED_FIELDS)
_FIGURES: Final = (*USAGE_TEXTS, *USAGE_COLUMNS, "charged_nano_usd")
_ROWS: Final = (
    f"SELECT {_FIELDS} FROM requests WHERE booked < 2 "  # noqa: S608
    "AND replica IS ? AND arrived_at_utc_ns < ? ORDER BY arrived_at_utc_ns"
)
_REPLICAS: Final = """
    SELECT DISTINCT replica FROM requests WHERE booked < 2 AND replica IS NOT NULL
    UNION SELECT replica FROM replica_time WHERE until_utc_ns > ?
"""


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """Rows like those of the settled time before: all of it may still change."""

    since_utc_s: float
    """Rows are of the windows that begin here or later: each replica's from where it is settled."""
    until_utc_s: float
    """Less than what was asked for where the gateway has not run to then."""
    usage: list[UsageRow]
    capacity: list[CapacityRow]
    requests: dict[int, tuple[int | None, ...]]
    """GPU time, low and high, prefill and recomputed, by request: with what it had before."""


def provisional_tail(
    connection: Connection,
    path: str,
    sharing: Callable[[str], Sharing],
    window_s: int,
    since_utc_ns: int,
    until_utc_ns: int,
    *,
    in_transaction: bool = False,
) -> Tail:
    """Books the windows after what is settled, up to a time, in memory. See UsageReader."""
    if not in_transaction:
        connection.execute("BEGIN")
    try:
        settled: dict[str, int] = dict(connection.execute("SELECT * FROM settled").fetchall())
        seen_ns = connection.execute("SELECT max(until_utc_ns) FROM replica_time").fetchone()[0]
        if seen_ns is not None:
            until_utc_ns = min(until_utc_ns, int(seen_ns) + _UNSEEN_S * NS_PER_S)
        begin_ns = max(settled.get("", 0), until_utc_ns - TAIL_MAX_S * NS_PER_S)
        books = WindowBooks(path)
        for (replica,) in connection.execute(_REPLICAS, (begin_ns,)).fetchall():
            shared = sharing(replica)
            from_ns = max(begin_ns, settled.get(replica, 0))
            _book(connection, books, replica, shared, window_s, from_ns, until_utc_ns)
        books.add(
            connection.execute(_ROWS, (None, until_utc_ns)).fetchall(),
            replica="",
            start_ns=until_utc_ns,
            end_ns=until_utc_ns,
            now_ns=until_utc_ns,
            stretch=Stretch(),
            sharing=None,
        )
    finally:
        if not in_transaction:
            connection.execute("ROLLBACK")
    since_s = since_utc_ns // NS_PER_S
    return Tail(
        since_utc_s=max(since_utc_ns, begin_ns) / NS_PER_S,
        until_utc_s=until_utc_ns / NS_PER_S,
        usage=_usage(books, since_s),
        capacity=_capacity(books, since_s),
        requests={int(row[-1] or 0): row[:5] for row in books.requests},
    )


def _book(
    connection: Connection,
    books: WindowBooks,
    replica: str,
    sharing: Sharing,
    window_s: int,
    start_ns: int,
    until_ns: int,
) -> None:
    """The replica's windows, one after the other, as the pass would book them."""
    waiting = deque(connection.execute(_ROWS, (replica, until_ns)).fetchall())
    rows: dict[int, Row] = {}
    found = connection.execute(
        "SELECT blob FROM attribution_state WHERE replica = ?", (replica,)
    ).fetchone()
    if found is not None:
        sharing.restore(found[0])
    window_ns = window_s * NS_PER_S
    while start_ns < until_ns:
        end_ns = min(until_ns, start_ns - start_ns % window_ns + window_ns)
        stretch = stretch_of(connection, replica, start_ns, end_ns)
        while waiting and waiting[0][_ARRIVED] < end_ns:
            row = waiting.popleft()
            rows[row[0]] = row
        known = len(books.requests)
        books.add(
            list(rows.values()),
            replica=replica,
            start_ns=start_ns,
            end_ns=end_ns,
            now_ns=until_ns,
            stretch=stretch,
            sharing=sharing if stretch.up_ns else None,
        )
        for *figures, booked, request_id in books.requests[known:]:
            row = rows.pop(int(request_id or 0))
            if booked != 2:
                rows[row[0]] = (*row[:_SHARE], *figures, booked)
        start_ns = end_ns


def _usage(books: WindowBooks, since_utc_s: int) -> list[UsageRow]:
    found: list[UsageRow] = []
    for key, sums in sorted(books.usage.items(), key=_first):
        if key[0] >= since_utc_s:
            named: dict[str, Any] = dict(zip(_FIGURES, (*key[1:], *sums), strict=True))
            found.append(UsageRow(hour_at_utc_s=hour_of(key[0]), **named))
    return found


def _first(item: tuple[UsageKey, Any]) -> UsageKey:
    return item[0]


def _capacity(books: WindowBooks, since_utc_s: int) -> list[CapacityRow]:
    found: list[CapacityRow] = []
    for (minute, replica), sums in sorted(books.capacity.items()):
        if minute >= since_utc_s:
            gpu, gpus = books.replicas.get((minute, replica), ("", 1.0))
            figures: dict[str, Any] = dict(zip(CAPACITY_COLUMNS, sums, strict=True))
            found.append(
                CapacityRow(
                    hour_at_utc_s=hour_of(minute), replica=replica, gpu=gpu, gpus=gpus, **figures
                )
            )
    return found
