"""The static limit: one number, the baseline that every other policy has to beat."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_range
from mileage.policy.limits.bounds import UNBOUNDED, LimitBounds, clamped
from mileage.policy.limits.limit import LimitDecision, LimitSignals

__all__ = ["StaticConfig", "StaticLimit", "static_limit"]


class StaticConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor.static]`: used where `policy = "static"`."""

    limit: int | None = None
    """Requests at once. None: as many as the engine runs at once, or `limit_max`."""

    def __post_init__(self) -> None:
        if self.limit is not None:
            require_range("governor.static.limit", self.limit, 1, 100_000)


class StaticLimit:
    """Always the same limit. It looks at nothing but the engine's own limit, which bounds it."""

    __slots__ = ("_bounds", "_config")

    def __init__(
        self, config: StaticConfig, *, limit: int, bounds: LimitBounds = UNBOUNDED
    ) -> None:
        # `limit`, where it happens to be, does not count: the baseline is what was configured.
        self._config, self._bounds = config, bounds

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """The configured limit, at most the engine's own."""
        wanted, bounds = self._config.limit, self._bounds
        limit = static_limit(wanted or 0, bounds.limit_min, bounds.ceiling(signals))
        if wanted is None:
            return LimitDecision(limit, f"static: {limit}, the most there can be")
        if limit != wanted:
            return LimitDecision(limit, f"static: {limit}, as {wanted} is out of bounds")
        return LimitDecision(limit, f"static: {limit}")


def static_limit(wanted: int, limit_min: int, ceiling: int) -> int:
    """The limit that was configured, within its bounds; 0: as many as there can be."""
    return clamped(wanted, limit_min, ceiling) if wanted else ceiling
