"""Circuit breaker: when a failing replica is left alone, and when it is tried again."""

from __future__ import annotations

import math

import msgspec

from mileage.core.errors import ConfigError

__all__ = ["BreakerConfig"]


class BreakerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[breaker]`."""

    failures_max: int = 5
    """Failures in a row that open the breaker."""
    open_s: float = 1.0
    """First time it stays open; doubles with each failed probe."""
    open_max_s: float = 30.0

    def __post_init__(self) -> None:
        if self.failures_max < 1:
            raise ConfigError("breaker.failures_max", self.failures_max, "at least 1")
        if not (0 < self.open_s <= self.open_max_s and math.isfinite(self.open_max_s)):
            raise ConfigError("breaker.open_s", self.open_s, f"above 0, up to {self.open_max_s}")
