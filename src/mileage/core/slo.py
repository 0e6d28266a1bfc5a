"""Slo: the latency targets that a request should meet."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mileage.core.bounds import require_positive, require_range

__all__ = ["Slo", "SloConfig"]


class Slo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Targets in seconds: time to first token, and inter-token latency. None: no target.

    Raises ConfigError for a target that is not a positive, finite number.
    """

    ttft_s: float | None = None
    """Time to first token, from receipt of the request's last byte."""
    itl_s: float | None = None
    """Inter-token latency: the p99 of a request's own gaps between tokens."""
    ttft_unloaded_ratio: float | None = None
    """Long prompts have longer: at least so many times what their prefill takes on an idle replica,
    as far as that has been learned. Without `ttft_s` it says nothing."""

    def __post_init__(self) -> None:
        for key in ("ttft_s", "itl_s"):
            value = getattr(self, key)
            if value is not None:
                require_positive(f"slo.{key}", value)
        if self.ttft_unloaded_ratio is not None:
            require_range("slo.ttft_unloaded_ratio", self.ttft_unloaded_ratio, 1.0, 1e6)

    def ttft_target_s(self, alone_s: float) -> float | None:
        """The target of a request whose first token takes `alone_s` on an idle replica; 0 where
        that is not known."""
        floor_s, ratio = self.ttft_s, self.ttft_unloaded_ratio
        if floor_s is None or ratio is None:
            return floor_s
        return max(floor_s, ratio * alone_s)


class SloConfig(Slo, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[slo]`: targets of all requests, and of models that have their own."""

    models: dict[str, Slo] = {}
    """`[slo.models."NAME"]`: targets of this model, instead of the general ones."""

    def of(self, model: str) -> Slo:
        """The targets of requests for a model."""
        return self.models.get(model, self)

    def strictest_ttft_s(self, models: Collection[str]) -> float | None:
        """The shortest that any of these models has for the first token; None: none has one."""
        own = [its for name, its in self.models.items() if name in models]
        targets = [its.ttft_s for its in own if its.ttft_s is not None]
        if self.ttft_s is not None and len(own) < len(models):
            targets.append(self.ttft_s)
        return min(targets, default=None)
