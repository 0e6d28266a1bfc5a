"""A month of requests, booked: as many rows of a ledger as wanted, made by the database itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mileage.storage.request_sums import REPLICA, REQUEST_SUMS
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore

__all__ = ["DAYS", "MONTH_UTC_S", "make_month"]

MONTH_UTC_S = 1_761_955_200
"""2025-11-01, 00:00 UTC."""
DAYS = 30
REPLICAS, TENANTS, MODELS, KEYS = 8, 40, 2, 3
_NS = 1_000_000_000
_HOUR_NS = 3600 * _NS
_CHUNK = 500_000

_REQUESTS = f"""
    WITH RECURSIVE numbers(n) AS (
        SELECT ?1 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?2
    )
    INSERT INTO requests (id, tenant, model, endpoint, stream, arrived_at_utc_ns, outcome, status,
        replica, attempts, dispatched_s, first_token_s, last_token_s, finished_s, prompt_tokens,
        cached_tokens, output_tokens, gpu_ns, key, attributed_ns, attributed_low_ns,
        attributed_high_ns, attributed_prefill_ns, attributed_recomputed_ns, booked)
    SELECT (({MONTH_UTC_S} * 1000000 + n * ?3) << 6), 'team-' || (n % {TENANTS}),
        'model-' || (n % {MODELS}), 'chat', 0, ({MONTH_UTC_S} * 1000000 + n * ?3) * 1000,
        CASE WHEN n % 50 THEN 'ok' ELSE 'failed' END, 200, 'replica-' || (n / 3 % {REPLICAS}), 1,
        0.001, 0.05, 0.4, 0.5, 100 + n % 900, 64, 128, ?4, 'key-' || (n % {KEYS}), ?4 + n % 1000,
        ?4, ?4 + 2000, ?4 / 3, 0, 2
    FROM numbers
"""
_USAGE = f"""
    INSERT INTO usage_hours (hour_at_utc_s, replica, tenant, model, key,
        {", ".join(REQUEST_SUMS)}, failed_ns, low_ns, high_ns)
    SELECT arrived_at_utc_ns / {3600 * _NS} * 3600, {REPLICA}, tenant, model, key,
        {", ".join(REQUEST_SUMS.values())},
        sum(CASE WHEN outcome != 'ok' THEN attributed_ns ELSE 0 END), sum(attributed_low_ns),
        sum(attributed_high_ns)
    FROM requests GROUP BY 1, 2, 3, 4, 5
"""
_CAPACITY = f"""
    INSERT INTO capacity_hours (hour_at_utc_s, replica, gpu, capacity_ns, idle_ns, observed_ns)
    SELECT hour_at_utc_s, replica, 'h100-sxm', {_HOUR_NS}, {_HOUR_NS} - sum(gpu_ns), {_HOUR_NS}
    FROM usage_hours GROUP BY 1, 2
"""
_TIME = f"""
    INSERT INTO replica_time SELECT DISTINCT replica, {MONTH_UTC_S * _NS},
        {(MONTH_UTC_S + DAYS * 86_400) * _NS}, 1.0, 'h100-sxm', 'up' FROM capacity_hours
"""
_SETTLED = f"""
    INSERT INTO settled SELECT replica, until_utc_ns FROM replica_time
    UNION ALL SELECT '', {(MONTH_UTC_S + DAYS * 86_400) * _NS}
"""


def make_month(directory: Path, rows: int) -> None:
    """A ledger with so many requests, spread over 30 days, and the roll-ups that they make."""
    directory.mkdir(parents=True, exist_ok=True)
    SqliteStore(directory / DATABASE_NAME).close()
    step_us = DAYS * 86_400 * 1_000_000 // rows
    gpu_ns = DAYS * 86_400 * _NS * REPLICAS // rows // 2
    with closing(sqlite3.connect(directory / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for first in range(0, rows, _CHUNK):
            bounds = (first, min(first + _CHUNK, rows), step_us, gpu_ns)
            connection.execute(_REQUESTS, bounds)
        for statement in (_USAGE, _CAPACITY, _TIME, _SETTLED):
            connection.execute(statement)
