"""Configuration of the ledger: section `[ledger]`."""

from __future__ import annotations

from typing import Literal

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.storage.postgres_address import check_address

__all__ = ["LedgerConfig"]


class LedgerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where request records go and what happens when they cannot be written."""

    enabled: bool = True
    """false: no request is recorded, and no GPU time; then there are no costs and no budgets."""
    directory: str | None = None
    """None: $XDG_STATE_HOME/mileage/ledger, else ~/.local/state/mileage/ledger."""
    database: str | None = None
    """Address of a PostgreSQL database that several gateways share: postgresql://USER@HOST/DB. The
    password is in the file that PGPASSFILE names, or in PGPASSWORD. None: a database of this
    gateway's own, in `directory`, where the log is in both cases."""
    on_failure: Literal["open", "closed"] = "open"
    """open: requests go on without a record, counted; closed: they are refused with 503."""
    budget_lease_ratio: float = 0.1
    """While the ledger cannot tell what was spent of a budget before this start, and `on_failure`
    is open: the part of it that may be spent in the present period all the same."""
    segment_bytes_max: int = 64 * 1024 * 1024
    """A log file is closed and a new one begun at this size."""
    token_times: bool = True
    """Store the time of every token of streamed answers."""
    retention_days: int = 30
    """Delete stored requests older than this, once their GPU time is booked, and the sums by the
    minute; those by the hour are kept for ever. 0: keep all."""

    def __post_init__(self) -> None:
        if not self.enabled and self.on_failure == "closed":
            expected = "open, where ledger.enabled is false: no request has a record"
            raise ConfigError("ledger.on_failure", self.on_failure, expected)
        if self.database is not None:
            check_address("ledger.database", self.database)
        require_range("ledger.segment_bytes_max", self.segment_bytes_max, 1 << 16, 1 << 32)
        require_range("ledger.budget_lease_ratio", self.budget_lease_ratio, 0.0, 1.0)
        require_at_least("ledger.retention_days", self.retention_days, 0)
