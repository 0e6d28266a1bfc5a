"""Merging: which requests share one generation, and which go upstream as one call."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least, require_range

__all__ = ["MergingConfig"]


class MergingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[merging]`."""

    enabled: bool = True
    """Identical requests in flight share one generation: those that are deterministic, and others
    that ask for it with the header `x-mileage-merge: yes`."""
    across_tenants: bool = False
    """Also between tenants: one then learns, from the time it takes, what another has asked."""
    buffer_bytes_max: int = 1024 * 1024
    """Of an answer kept for those that join late; a longer one takes no more joiners."""
    batch_enabled: bool = True
    """Embedding requests that come close together go upstream as one call."""
    batch_window_max_s: float = 0.01
    """The longest that a request is held for company."""
    batch_load_min: int = 4
    """Requests of the kind in flight at a replica below which none is held."""
    batch_items_max: int = 64
    """Items of one upstream call."""

    def __post_init__(self) -> None:
        require_at_least("merging.buffer_bytes_max", self.buffer_bytes_max, 1024)
        require_range("merging.batch_window_max_s", self.batch_window_max_s, 0.0, 0.01)
        require_at_least("merging.batch_load_min", self.batch_load_min, 0)
        require_range("merging.batch_items_max", self.batch_items_max, 2, 2048)
