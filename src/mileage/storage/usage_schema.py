"""The tables of who used what: GPU time of replicas, shares of requests, and their roll-ups."""

from __future__ import annotations

from typing import Final

__all__ = ["CAPACITY_COLUMNS", "USAGE_COLUMNS", "USAGE_SCHEMA", "USAGE_TEXTS"]

USAGE_TEXTS: Final = ("replica", "tenant", "model", "adapter", "key", "labels")
"""What requests that are booked alike have in common, beside their time."""
USAGE_COLUMNS: Final = (
    "requests",
    "requests_failed",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "gpu_ns",
    "prefill_ns",
    "recomputed_ns",
    "failed_ns",
    "low_ns",
    "high_ns",
    "saturated_ns",
)
"""Sums of UsageRow that are numbers always."""
CAPACITY_COLUMNS: Final = (
    "capacity_ns",
    "idle_ns",
    "warmup_ns",
    "observed_ns",
    "late_requests",
    "late_ns",
)
"""Sums of one replica: GPU time, then the wall-clock time of which its state is on record, and
what came too late to have a share."""


def _sums(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} INTEGER NOT NULL DEFAULT 0" for name in names)


def _usage(table: str, at: str) -> str:
    texts = ", ".join(f"{name} TEXT NOT NULL DEFAULT ''" for name in USAGE_TEXTS)
    return (
        f"CREATE TABLE {table} ({at} INTEGER NOT NULL, {texts}, {_sums(USAGE_COLUMNS)}, "
        f"charged_nano_usd INTEGER, PRIMARY KEY ({at}, {', '.join(USAGE_TEXTS)})) WITHOUT ROWID"
    )


def _capacity(table: str, at: str) -> str:
    return (
        f"CREATE TABLE {table} ({at} INTEGER NOT NULL, replica TEXT NOT NULL, "
        "gpu TEXT NOT NULL DEFAULT '', gpus REAL NOT NULL DEFAULT 1.0, "
        f"{_sums(CAPACITY_COLUMNS)}, PRIMARY KEY ({at}, replica)) WITHOUT ROWID"
    )


USAGE_SCHEMA: Final = (
    "ALTER TABLE requests ADD COLUMN key TEXT",
    "ALTER TABLE requests ADD COLUMN adapter TEXT",
    "ALTER TABLE requests ADD COLUMN labels TEXT",
    "ALTER TABLE requests ADD COLUMN attributed_ns INTEGER",
    "ALTER TABLE requests ADD COLUMN attributed_low_ns INTEGER",
    "ALTER TABLE requests ADD COLUMN attributed_high_ns INTEGER",
    "ALTER TABLE requests ADD COLUMN attributed_prefill_ns INTEGER",
    "ALTER TABLE requests ADD COLUMN attributed_recomputed_ns INTEGER",
    # 0: not seen by the attribution; 1: in some of its windows; 2: in all, and counted.
    "ALTER TABLE requests ADD COLUMN booked INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX requests_to_book ON requests (replica, arrived_at_utc_ns) WHERE booked < 2",
    """
    CREATE TABLE replica_time (
        replica TEXT NOT NULL,
        from_utc_ns INTEGER NOT NULL,
        until_utc_ns INTEGER NOT NULL,
        gpus REAL NOT NULL,
        gpu TEXT NOT NULL,
        state TEXT NOT NULL,
        PRIMARY KEY (replica, from_utc_ns)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX replica_time_by_end ON replica_time (until_utc_ns)",
    _usage("usage_hours", "hour_at_utc_s"),
    _usage("usage_minutes", "minute_at_utc_s"),
    _capacity("capacity_hours", "hour_at_utc_s"),
    _capacity("capacity_minutes", "minute_at_utc_s"),
    # Of what a request has had: what it had in later hours than that of its arrival.
    """
    CREATE TABLE request_hours (
        request_id INTEGER NOT NULL,
        hour_at_utc_s INTEGER NOT NULL,
        replica TEXT NOT NULL,
        gpu_ns INTEGER NOT NULL,
        low_ns INTEGER NOT NULL,
        high_ns INTEGER NOT NULL,
        prefill_ns INTEGER NOT NULL,
        recomputed_ns INTEGER NOT NULL,
        PRIMARY KEY (request_id, hour_at_utc_s, replica)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX request_hours_by_hour ON request_hours (hour_at_utc_s)",
    "CREATE TABLE settled (replica TEXT PRIMARY KEY, until_utc_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE attribution_state (replica TEXT PRIMARY KEY, blob BLOB NOT NULL) WITHOUT ROWID",
    # From when on nothing of a kind (requests, minutes, replica_time) is deleted.
    "CREATE TABLE kept_since (kind TEXT PRIMARY KEY, utc_ns INTEGER NOT NULL) WITHOUT ROWID",
    # What deleted requests had, so that rows and roll-ups can be compared for ever.
    f"""
    CREATE TABLE retired (
        replica TEXT NOT NULL,
        tenant TEXT NOT NULL,
        {_sums(USAGE_COLUMNS[: USAGE_COLUMNS.index("failed_ns")])},
        PRIMARY KEY (replica, tenant)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE gpu_minutes (
        minute_at_utc_s INTEGER NOT NULL,
        host TEXT NOT NULL,
        gpu TEXT NOT NULL,
        field TEXT NOT NULL,
        mean REAL NOT NULL,
        max REAL NOT NULL,
        samples INTEGER NOT NULL,
        PRIMARY KEY (minute_at_utc_s, host, gpu, field)
    ) WITHOUT ROWID
    """,
)
"""Statements that add all this to a ledger of version 3."""
