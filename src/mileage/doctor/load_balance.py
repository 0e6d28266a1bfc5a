"""How evenly load lies on replicas or ranks: one works or queues while another has nothing."""

from __future__ import annotations

from math import isfinite, sqrt

from mileage.doctor.arms import Arm
from mileage.doctor.check import Check, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.quantity import Quantity

__all__ = ["LOAD_KEYS", "balanced", "idle_share", "lopsided", "uneven"]

LOAD_KEYS = (
    "requests_waiting",
    "requests_running",
    "requests_running_max",
    "kv_cache_usage_ratio",
    "preemptions_per_s",
    "preemptions_count",
    "queue_time_mean_s",
    "queue_time_p99_s",
    "ttft_mean_s",
    "ttft_p99_s",
    "output_tokens_per_s",
    "prompt_tokens_per_s",
    "total_tokens_per_s",
    "requests_per_s",
    "requests_completed_count",
    "gpu_util_ratio",
    "sm_active_ratio",
)
"""What shows the load of each replica, the most telling first."""

UNEVEN = 1.3
"""Largest over smallest: means over a window of equally loaded replicas lie within a fifth."""

LOPSIDED = 2.0
"""Largest over smallest: one does twice the work of another, or queues while it does not."""

EVEN = 1.2
"""Largest over smallest of units that are loaded alike."""

QUEUE_MIN = 1.0
"""A queue of less than one request on average is none, be the others emptier still."""

LONE = 1.5
"""A count of one, read once, is a request that has just come."""

QUEUE_RATIO = 0.05
"""Nor one of a twentieth of what is running: such are requests that have just come."""

BUSY_MIN = {"gpu_util_ratio": 0.5, "sm_active_ratio": 0.3, "kv_cache_usage_ratio": 0.5}
"""What the busiest unit must reach: below it all have room, and how they share it costs nothing."""

COUNTED = ("requests_running", "requests_running_max", "requests_completed_count")
CHANCE = 1.5
"""Standard deviations by which two counts of requests that are spread at random differ often."""


def uneven(e: Evidence | Arm) -> Check:
    """Is one unit clearly more loaded than another, in any of the signals?"""
    return either(*(_apart(e, key, UNEVEN) for key in LOAD_KEYS))


def lopsided(e: Evidence | Arm) -> Check:
    """Has one unit at least twice the load of another, or a queue where another has none?"""
    return either(*(_apart(e, key, LOPSIDED) for key in LOAD_KEYS))


def balanced(e: Evidence | Arm) -> Check:
    """Are all units that are known loaded alike?"""
    listed = [e.number(key) for key in LOAD_KEYS if e.number(key).units]
    checks = [_apart(e, quantity.key, EVEN).truth for quantity in listed]
    truth = None if None in checks or not checks else not any(checks)
    truth = False if True in checks else truth
    key = listed[0].key if listed else "requests_running"
    shown = listed[0].plain() if listed else None
    return Check(key, shown, "alike in all units", truth)


def idle_share(e: Evidence | Arm) -> Interval | None:
    """Share of what the busiest unit does that the mean unit leaves undone; None if unknown."""
    for key in ("output_tokens_per_s", "total_tokens_per_s", "requests_running", "gpu_util_ratio"):
        units = e.number(key)
        if units.units and units.value.bounded and units.most.bounded and units.most.high > 0:
            used = units.value.over(units.most).clipped(0.0, 1.0)
            return Interval(1.0 - used.high, 1.0 - used.low)
    return None


def _apart(e: Evidence | Arm, key: str, factor: float) -> Check:
    units = e.number(key)
    limit = f"largest >= {factor:g} x smallest"
    if not units.units:
        return Check(units.key, None, limit, None)
    most, least = units.most, units.least
    floor = _queue_floor(e, units) if key == "requests_waiting" else BUSY_MIN.get(key, 0.0)
    truth: bool | None = None
    surely, maybe = _by_chance(key, most.low, least.high), _by_chance(key, most.high, least.low)
    if most.low >= max(least.high * factor, least.high + surely, floor) and most.low > least.high:
        truth = True
    elif most.high < max(least.low * factor, least.low + maybe, floor) or most.high <= least.low:
        truth = False
    return Check(units.key, units.plain(), limit, truth)


def _by_chance(key: str, most: float, least: float) -> float:
    """How far apart two counts may be that differ by chance alone: a count scatters by its root."""
    if key not in COUNTED or not isfinite(most + least):
        return 0.0
    return CHANCE * sqrt(max(0.0, most + least))


def _queue_floor(e: Evidence | Arm, waiting: Quantity) -> float:
    running, floor = e.number("requests_running"), QUEUE_MIN
    if waiting.most.exact:
        floor = LONE
    return max(floor, QUEUE_RATIO * running.value.low) if running.known else floor
