"""Goal: what a set-up has to keep, and by when it has to have caught up."""

from __future__ import annotations

from typing import Literal

import msgspec

from mileage.core.bounds import require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.core.slo import Slo

__all__ = ["Goal"]


class Goal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Targets, and the share of all requests that must meet them.

    A fleet that is still busy `drain_s` after the last arrival does not carry the load, whatever
    the targets: its queue grew all along.
    """

    slo: Slo = Slo()
    attainment_ratio: float = 0.95
    """Of all requests; those that are refused or fail have missed. Latencies are told at the same
    quantile."""
    gaps: Literal["p99", "mean"] = "p99"
    """What of a request's gaps between tokens has to meet the ITL target."""
    drain_s: float = 300.0

    def __post_init__(self) -> None:
        require_range("attainment", self.attainment_ratio, 0.01, 1.0)
        require_positive("drain_s", self.drain_s)
        if self.gaps not in ("p99", "mean"):
            raise ConfigError("gaps", self.gaps, "p99 or mean")
