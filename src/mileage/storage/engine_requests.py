"""Table `engine_requests`: what engines said of requests, beside the gateway's own record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from mileage.storage.connection import Connection

__all__ = [
    "ENGINE_SCHEMA",
    "EngineFigures",
    "EngineRow",
    "add_engine_requests",
    "engine_figures",
]

ENGINE_SCHEMA: Final = (
    """
    CREATE TABLE engine_requests (
        request_id INTEGER NOT NULL,
        replica TEXT NOT NULL,
        ended_at_utc_ns INTEGER NOT NULL,
        queue_s REAL,
        prefill_s REAL,
        decode_s REAL,
        prompt_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        preemptions INTEGER NOT NULL,
        sequences INTEGER NOT NULL,
        PRIMARY KEY (request_id, replica)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX engine_requests_by_end ON engine_requests (ended_at_utc_ns)",
    # How far each file of an engine is read, in the transaction of its rows.
    """
    CREATE TABLE engine_request_files (
        name TEXT PRIMARY KEY,
        read_bytes INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
)
"""Statements that add all this to a ledger of version 4."""

_LOOKUP_ROWS: Final = 500
_ADD: Final = """
    INSERT INTO engine_requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
    ON CONFLICT (request_id, replica) DO UPDATE SET
        ended_at_utc_ns = max(engine_requests.ended_at_utc_ns, excluded.ended_at_utc_ns),
        queue_s = coalesce(max(engine_requests.queue_s, excluded.queue_s),
            engine_requests.queue_s, excluded.queue_s),
        prefill_s = coalesce(max(engine_requests.prefill_s, excluded.prefill_s),
            engine_requests.prefill_s, excluded.prefill_s),
        decode_s = coalesce(max(engine_requests.decode_s, excluded.decode_s),
            engine_requests.decode_s, excluded.decode_s),
        prompt_tokens = engine_requests.prompt_tokens + excluded.prompt_tokens,
        cached_tokens = engine_requests.cached_tokens + excluded.cached_tokens,
        output_tokens = engine_requests.output_tokens + excluded.output_tokens,
        preemptions = engine_requests.preemptions + excluded.preemptions,
        sequences = engine_requests.sequences + 1
"""


class EngineRow(NamedTuple):
    """One sequence of a request, as EngineRequest has it."""

    request_id: int
    replica: str
    ended_at_utc_ns: int
    queue_s: float | None
    prefill_s: float | None
    decode_s: float | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int


class EngineFigures(msgspec.Struct, frozen=True, gc=False):
    """What the engine that answered said of a request.

    Of several sequences (choices, prompts of a batch) times are those of the longest, and tokens
    and preemptions are sums. Seconds; None where the engine did not tell the time.
    """

    queue_s: float | None
    prefill_s: float | None
    decode_s: float | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int
    sequences: int


_FIELDS: Final = ", ".join(f"e.{name}" for name in EngineFigures.__struct_fields__)


def add_engine_requests(connection: Connection, rows: Iterable[EngineRow]) -> None:
    """Store these, within a transaction of the caller's."""
    connection.executemany(_ADD, rows)


def engine_figures(connection: Connection, ids: Sequence[int]) -> dict[int, EngineFigures]:
    """Of those of the requests whose last replica told; by id."""
    found: dict[int, EngineFigures] = {}
    for start in range(0, len(ids), _LOOKUP_ROWS):
        some = ids[start : start + _LOOKUP_ROWS]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            f"SELECT e.request_id, {_FIELDS} FROM engine_requests AS e "  # noqa: S608
            "JOIN requests AS r ON r.id = e.request_id AND r.replica = e.replica "
            f"WHERE e.request_id IN ({marks})",
            some,
        ).fetchall()
        found.update({row[0]: EngineFigures(*row[1:]) for row in rows})
    return found
