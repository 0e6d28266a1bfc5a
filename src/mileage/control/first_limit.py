"""The limit that a replica begins with, and its throttle as configured."""

from __future__ import annotations

import math

from mileage.control.config import ControlConfig
from mileage.control.throttle import Throttle
from mileage.policy.limits.choose import make_limit

__all__ = ["first_limit", "make_throttle"]

_BEGIN = 32


def make_throttle(config: ControlConfig) -> Throttle:
    """A replica's throttle as configured."""
    limit = first_limit(config)
    throttle = Throttle(make_limit(config.governor, limit=limit), limit)
    throttle.order(config.governor, -math.inf)
    return throttle


def first_limit(config: ControlConfig) -> int:
    """The limit that a replica begins with.

    It is the highest one: what an engine takes by itself is the engine's to say. Only where the
    model has a target for the latency between tokens to keep does it begin low, and finds its way
    up: of a first burst that was let in whole every request would miss it.
    """
    governor, slo = config.governor, config.slo
    limit = governor.limit_max
    targets = [slo.itl_s, *(each.itl_s for each in slo.models.values())]
    seeks = governor.policy == "model" and not governor.model.engine_policies
    if seeks and any(target is not None for target in targets):
        limit = max(governor.limit_min, min(limit, _BEGIN))
    return limit
