"""Slo: the latency targets that a request should meet."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_positive

__all__ = ["Slo"]


class Slo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Targets in seconds: time to first token, and inter-token latency. None: no target.

    Raises ConfigError for a target that is not a positive, finite number.
    """

    ttft_s: float | None = None
    itl_s: float | None = None

    def __post_init__(self) -> None:
        for key in ("ttft_s", "itl_s"):
            value = getattr(self, key)
            if value is not None:
                require_positive(f"slo.{key}", value)
