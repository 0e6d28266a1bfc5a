"""LedgerReader: what the ledger's database says about requests; never writes to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from mileage.core.timeline import Outcome, RequestTimeline
from mileage.storage.engine_requests import EngineFigures, engine_figures
from mileage.storage.open_ledger import is_address, open_ledger
from mileage.storage.record import FINISH_FIELDS
from mileage.storage.request_rows import SHARE_FIELDS, timeline_of
from mileage.storage.sqlite import GATEWAY_SHIFT, ledger_errors

__all__ = ["LedgerReader", "OutcomeCount", "RequestFilter", "Spent"]

_FIELDS: Final = ", ".join(FINISH_FIELDS)
_OFFSETS: Final = ("dispatched_s", "first_token_s", "last_token_s", "finished_s")
_NUMBERS: Final = (
    *_OFFSETS,
    "arrived_at_utc_ns",
    "status",
    "attempts",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "output_tokens_counted",
    "itl_mean_s",
    "itl_p99_s",
    "itl_max_s",
    "gpu_ns",
    "cost_nano_usd",
    *SHARE_FIELDS,
)
_ARRIVED: Final = FINISH_FIELDS.index("arrived_at_utc_ns")
_PROBLEMS_MAX: Final = 20
_FETCH_ROWS: Final = 1000
_WORKER_MASK: Final = 63
"""Bits of a request's id that are the number of its worker."""


class RequestFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests: all that match every given field. `since_utc_ns` is of their arrival."""

    tenant: str | None = None
    model: str | None = None
    outcome: Outcome | None = None
    since_utc_ns: int | None = None

    def sql(self) -> tuple[str, list[Any]]:
        """A WHERE clause (empty without conditions) and its parameters."""
        conditions = {
            "tenant = ?": self.tenant,
            "model = ?": self.model,
            "outcome = ?": self.outcome,
            "arrived_at_utc_ns >= ?": self.since_utc_ns,
        }
        given = {sql: value for sql, value in conditions.items() if value is not None}
        return (f" WHERE {' AND '.join(given)}" if given else ""), list(given.values())


class OutcomeCount(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one tenant with one outcome, and their tokens as far as engines reported them.

    Tokens of a generation that several shared count once, for the request that has them on record.
    """

    tenant: str
    outcome: Outcome
    requests: int
    prompt_tokens: int | None
    output_tokens: int | None


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What requests cost together, as far as it is on record."""

    tokens: int
    """As engines counted them; where one did not, those that were seen on the stream."""
    gpu_ns: int
    cost_nano_usd: int


class LedgerReader:
    """Reads a ledger that a gateway may be writing to. Every method raises LedgerError."""

    def __init__(self, ledger: str | Path) -> None:
        """Open the database in the ledger directory, or at the address; LedgerError where there is
        none."""
        self._in_file = not is_address(ledger)
        self.path, self._connection = open_ledger(ledger)

    def close(self) -> None:
        """Close the connection; twice is fine."""
        with ledger_errors(self.path):
            self._connection.close()

    def last(self, count: int, where: RequestFilter | None = None) -> list[RequestTimeline]:
        """The `count` requests that arrived last, latest first."""
        clause, parameters = (where or RequestFilter()).sql()
        sql = (
            f"SELECT {_FIELDS} FROM requests{clause} "  # noqa: S608
            "ORDER BY arrived_at_utc_ns DESC, id DESC LIMIT ?"
        )
        with ledger_errors(self.path):
            rows = self._connection.execute(sql, [*parameters, count]).fetchall()
        return [timeline_of(row, self.path) for row in rows]

    def by_arrival(self, where: RequestFilter | None = None) -> Iterator[RequestTimeline]:
        """The requests in the order of arrival, read piece by piece."""
        clause, parameters = (where or RequestFilter()).sql()
        after: tuple[int, int] | None = None
        while True:
            # From where the last piece ended: neither a cursor that stays open nor all at once.
            begins = "" if after is None else "(arrived_at_utc_ns, id) > (?, ?)"
            joined = " AND " if clause else " WHERE "
            sql = (
                f"SELECT {_FIELDS} FROM requests{clause}{joined + begins if begins else ''} "  # noqa: S608
                f"ORDER BY arrived_at_utc_ns, id LIMIT {_FETCH_ROWS}"
            )
            with ledger_errors(self.path):
                rows = self._connection.execute(sql, [*parameters, *(after or ())]).fetchall()
            for row in rows:
                yield timeline_of(row, self.path)
            if len(rows) < _FETCH_ROWS:
                return
            after = rows[-1][_ARRIVED], rows[-1][0]

    def engine_figures(self, ids: Sequence[int]) -> dict[int, EngineFigures]:
        """What engines said of these requests, of those of which they did; by id."""
        with ledger_errors(self.path):
            return engine_figures(self._connection, ids)

    def counts(self, where: RequestFilter | None = None) -> list[OutcomeCount]:
        """Requests and tokens by tenant and outcome, ordered by both."""
        clause, parameters = (where or RequestFilter()).sql()
        own = "sum(CASE WHEN merged_into IS NULL THEN {}_tokens END)".format
        sql = (
            f"SELECT tenant, outcome, count(*), {own('prompt')}, {own('output')} "  # noqa: S608
            f"FROM requests{clause} GROUP BY tenant, outcome ORDER BY tenant, outcome"
        )
        with ledger_errors(self.path):
            rows = self._connection.execute(sql, parameters).fetchall()
        return [
            OutcomeCount(
                tenant=tenant,
                outcome=outcome,
                requests=requests,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
            )
            for tenant, outcome, requests, prompt_tokens, output_tokens in rows
        ]

    def spent(
        self,
        tenant: str,
        *,
        since_utc_ns: int,
        before_utc_ns: int | None = None,
        worker: int | None = None,
        gateway: int | None = None,
    ) -> Spent:
        """What the tenant's requests cost that arrived in this time; those of one worker, and of
        one gateway by its number in the database, where these are given."""
        output = "coalesce(output_tokens, output_tokens_counted, 0)"
        tokens = f"CASE WHEN merged_into IS NULL THEN coalesce(prompt_tokens, 0) + {output} END"
        conditions = {
            "tenant = ?": tenant,
            "arrived_at_utc_ns >= ?": since_utc_ns,
            "arrived_at_utc_ns < ?": before_utc_ns,
            f"id & {_WORKER_MASK} = ?": worker,
            f"id >> {GATEWAY_SHIFT} = ?": gateway,
        }
        given = {sql: value for sql, value in conditions.items() if value is not None}
        sql = (
            f"SELECT sum({tokens}), sum(gpu_ns), sum(cost_nano_usd) FROM requests "  # noqa: S608
            f"WHERE {' AND '.join(given)}"
        )
        with ledger_errors(self.path):
            sums = self._connection.execute(sql, list(given.values())).fetchone()
        tokens_sum, gpu_ns, cost_nano_usd = (int(value or 0) for value in sums)
        return Spent(tokens=tokens_sum, gpu_ns=gpu_ns, cost_nano_usd=cost_nano_usd)

    def gateway(self, identity: str) -> tuple[int, int] | None:
        """The number of a gateway of a shared database, and since when it has that, nanoseconds
        since 1970; None: it has none yet."""
        sql = "SELECT number, since_utc_ns FROM gateways WHERE identity = ?"
        with ledger_errors(self.path):
            row = self._connection.execute(sql, (identity,)).fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def verify(self) -> list[str]:
        """What is wrong with the database, as sentences for people; empty if nothing is.

        Checks the structure of a file and each row: known outcome, no negative figure, and times in
        their order (dispatched, first token, last token, finished). Reads the whole database.
        """
        negative = " OR ".join(f"{field} < 0" for field in _NUMBERS)
        disordered = " OR ".join(
            f"{early} > {late}"
            for index, early in enumerate(_OFFSETS)
            for late in _OFFSETS[index + 1 :]
        )
        outcomes = ", ".join(f"'{outcome}'" for outcome in get_args(Outcome))
        checks = {
            "a negative figure": negative,
            "times out of order": disordered,
            "an unknown outcome": f"outcome NOT IN ({outcomes})",
        }
        problems: list[str] = []
        with ledger_errors(self.path):
            if self._in_file:
                rows = self._connection.execute(f"PRAGMA quick_check({_PROBLEMS_MAX})").fetchall()
                problems = [str(row[0]) for row in rows if row[0] != "ok"]
            for name, condition in checks.items():
                found = self._connection.execute(
                    f"SELECT count(*), min(id) FROM requests WHERE {condition}"  # noqa: S608
                ).fetchone()
                if found[0]:
                    problems.append(f"{found[0]} requests have {name}, the first has id {found[1]}")
        return problems
