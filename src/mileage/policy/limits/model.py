"""The model limit: the most requests whose steps still meet the ITL target."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_positive, require_up_to
from mileage.policy.limits.bounds import UNBOUNDED, LimitBounds
from mileage.policy.limits.limit import LimitDecision, LimitSignals

__all__ = ["ModelConfig", "ModelLimit"]


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor.model]`: used where `policy = "model"`."""

    cap_ratio: float = 0.9
    """The part of the ITL target that a step may take."""
    view_max_age_s: float = 10.0
    """Older observations are not used."""

    def __post_init__(self) -> None:
        require_up_to("governor.model.cap_ratio", self.cap_ratio, 1.0)
        require_positive("governor.model.view_max_age_s", self.view_max_age_s)


class ModelLimit:
    """Holds the limit until step times are known."""

    __slots__ = ("_bounds", "_config", "_limit")

    def __init__(self, config: ModelConfig, *, limit: int, bounds: LimitBounds = UNBOUNDED) -> None:
        self._config, self._bounds = config, bounds
        self._limit = limit

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """The limit in force."""
        self._limit = self._bounds.clamp(self._limit, signals)
        return LimitDecision(self._limit, f"step times are not known yet: held at {self._limit}")
