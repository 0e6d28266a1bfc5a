"""Slo: the latency targets that a request should meet."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_positive

__all__ = ["Slo", "SloConfig"]


class Slo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Targets in seconds: time to first token, and inter-token latency. None: no target.

    Raises ConfigError for a target that is not a positive, finite number.
    """

    ttft_s: float | None = None
    """Time to first token, from receipt of the request's last byte."""
    itl_s: float | None = None
    """Inter-token latency: the p99 of a request's own gaps between tokens."""

    def __post_init__(self) -> None:
        for key in ("ttft_s", "itl_s"):
            value = getattr(self, key)
            if value is not None:
                require_positive(f"slo.{key}", value)


class SloConfig(Slo, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[slo]`: targets of all requests, and of models that have their own."""

    models: dict[str, Slo] = {}
    """`[slo.models."NAME"]`: targets of this model, instead of the general ones."""

    def of(self, model: str) -> Slo:
        """The targets of requests for a model."""
        return self.models.get(model, self)
