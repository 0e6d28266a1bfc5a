"""Configuration of the ledger: section `[ledger]`."""

from __future__ import annotations

from typing import Literal

import msgspec

from mileage.core.bounds import require_at_least, require_range

__all__ = ["LedgerConfig"]


class LedgerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where request records go and what happens when they cannot be written."""

    directory: str | None = None
    """None: $XDG_STATE_HOME/mileage/ledger, else ~/.local/state/mileage/ledger."""
    on_failure: Literal["open", "closed"] = "open"
    """open: requests go on without a record, counted; closed: they are refused with 503."""
    budget_lease_ratio: float = 0.1
    """While the ledger cannot tell what was spent of a budget before this start, and `on_failure`
    is open: the part of it that may be spent in the present period all the same."""
    segment_bytes_max: int = 64 * 1024 * 1024
    """A log file is closed and a new one begun at this size."""
    token_times: bool = True
    """Store the time of every token of streamed answers."""
    retention_days: int | None = None
    """Delete stored requests older than this; None: keep all."""

    def __post_init__(self) -> None:
        require_range("ledger.segment_bytes_max", self.segment_bytes_max, 1 << 16, 1 << 32)
        require_range("ledger.budget_lease_ratio", self.budget_lease_ratio, 0.0, 1.0)
        if self.retention_days is not None:
            require_at_least("ledger.retention_days", self.retention_days, 1, note=", or none")
