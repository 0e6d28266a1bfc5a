"""LedgerReader: what the ledger's database says about requests; never writes to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import quote

import msgspec

from mileage.core.errors import LedgerError
from mileage.core.timeline import Outcome, RequestTimeline
from mileage.storage.migrations import MIGRATIONS, schema_version
from mileage.storage.record import FINISH_FIELDS
from mileage.storage.sqlite import DATABASE_NAME, ledger_errors

__all__ = ["LedgerReader", "OutcomeCount", "RequestFilter", "Spent"]

_FIELDS: Final = ", ".join(FINISH_FIELDS)
_TOKEN_TIMES: Final = FINISH_FIELDS.index("token_times")
_STREAM: Final = FINISH_FIELDS.index("stream")
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
)
_PROBLEMS_MAX: Final = 20
_FETCH_ROWS: Final = 1000
_WORKER_MASK: Final = 63
"""Bits of a request's id that are the number of its worker."""

_decode_times: Final = msgspec.msgpack.Decoder(tuple[int, ...]).decode


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

    def __init__(self, directory: str | Path) -> None:
        """Open the database in the ledger directory; LedgerError where there is none."""
        path = Path(directory) / DATABASE_NAME
        self.path = str(path)
        if not path.exists():
            raise LedgerError(self.path, "no ledger here: no such file")
        with ledger_errors(self.path):
            self._connection = sqlite3.connect(
                f"file:{quote(str(path.absolute()))}?mode=ro",
                uri=True,
                timeout=5.0,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._check_schema()
            except BaseException:
                self._connection.close()
                raise

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
        return [self._timeline(row) for row in rows]

    def by_arrival(self, where: RequestFilter | None = None) -> Iterator[RequestTimeline]:
        """The requests in the order of arrival, read piece by piece."""
        clause, parameters = (where or RequestFilter()).sql()
        sql = f"SELECT {_FIELDS} FROM requests{clause} ORDER BY arrived_at_utc_ns, id"  # noqa: S608
        with ledger_errors(self.path):
            cursor = self._connection.execute(sql, parameters)
        while True:
            with ledger_errors(self.path):
                rows = cursor.fetchmany(_FETCH_ROWS)
            if not rows:
                return
            for row in rows:
                yield self._timeline(row)

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
    ) -> Spent:
        """What the tenant's requests cost that arrived in this time, or those of one worker."""
        output = "coalesce(output_tokens, output_tokens_counted, 0)"
        tokens = f"CASE WHEN merged_into IS NULL THEN coalesce(prompt_tokens, 0) + {output} END"
        conditions = {
            "tenant = ?": tenant,
            "arrived_at_utc_ns >= ?": since_utc_ns,
            "arrived_at_utc_ns < ?": before_utc_ns,
            f"id & {_WORKER_MASK} = ?": worker,
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

    def verify(self) -> list[str]:
        """What is wrong with the database, as sentences for people; empty if nothing is.

        Checks the file's structure and each row: known outcome, no negative figure, and times in
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
        with ledger_errors(self.path):
            rows = self._connection.execute(f"PRAGMA quick_check({_PROBLEMS_MAX})").fetchall()
            problems = [str(row[0]) for row in rows if row[0] != "ok"]
            for name, condition in checks.items():
                found = self._connection.execute(
                    f"SELECT count(*), min(id) FROM requests WHERE {condition}"  # noqa: S608
                ).fetchone()
                if found[0]:
                    problems.append(f"{found[0]} requests have {name}, the first has id {found[1]}")
        return problems

    def _check_schema(self) -> None:
        version, newest = schema_version(self._connection), MIGRATIONS[-1].version
        if version != newest:
            raise LedgerError(
                self.path,
                f"its schema has version {version}, this program reads {newest}: "
                + ("use a newer Mileage" if version > newest else "run mileage serve on it once"),
            )

    def _timeline(self, row: tuple[Any, ...]) -> RequestTimeline:
        values = list(row)
        values[_STREAM] = bool(values[_STREAM])
        try:
            values[_TOKEN_TIMES] = _decode_times(row[_TOKEN_TIMES]) if row[_TOKEN_TIMES] else ()
        except msgspec.DecodeError as error:
            raise LedgerError(self.path, f"request {row[0]}: token_times: {error}") from error
        return RequestTimeline(**dict(zip(FINISH_FIELDS, values, strict=True)))
