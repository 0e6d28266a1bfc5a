"""Routing: which replica gets the request."""

from __future__ import annotations

import msgspec

from mileage.core.errors import ConfigError

__all__ = ["RoutingConfig"]


class RoutingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[routing]`."""

    affinity: bool = True
    """Prefer the replica that is likely to hold the prompt's prefix in its cache."""
    affinity_slack_s: float = 0.5
    """The preferred replica yields when its predicted wait is longer than the other's by this."""
    view_max_age_s: float = 10.0
    """Older observations are not used."""

    def __post_init__(self) -> None:
        if self.affinity_slack_s < 0:
            raise ConfigError("routing.affinity_slack_s", self.affinity_slack_s, "0 or more")
        if self.view_max_age_s <= 0:
            raise ConfigError("routing.view_max_age_s", self.view_max_age_s, "above 0")
