"""Experiments that tell whether the CPU sets the pace of a step: what changed, and what did not."""

from __future__ import annotations

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu as find_gpu
from mileage.doctor.arms import Arm, Comparison
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.rules.host_load import gpu_idle
from mileage.doctor.rules.setting_effect import effect_check, speeds

__all__ = [
    "clock_makes_no_difference",
    "faster_card_makes_no_difference",
    "more_load_less_gpu",
    "more_running_no_faster",
    "offline_is_faster",
    "penalties_slow",
    "separate_server_is_faster",
]

CLOCK_STEP = 0.85
"""A clock lowered to less than this share is lowered enough to show in the throughput."""

ELASTICITY_MAX = 0.4
"""Share of the change of the clock that reaches the throughput: 1 where the GPU's arithmetic sets
the pace, near 0 where the CPU does."""

FASTER_CARD = 1.4
"""Bandwidth ratio of two cards from which memory-bound steps would show it beyond the runs'
noise."""

SAME_SPEED = 1.1
"""Speed ratio up to which two runs count as alike: runs differ by some hundredths."""

GAIN = 0.9
"""Speed ratio below which the slower arm is slower by more than noise."""

PENALTY_FACTOR = 0.75
"""Speed with penalties over speed without that no sampler on the GPU explains."""

GPU_FALLS = 0.85
"""Ratio of utilisations below which one is lower by more than the sampling's noise."""

LOAD_GROWS = 2.0
"""Ratio of two loads from which they are different points of a sweep."""


def _told(signal: str, limit: str, truths: list[bool | None], shown: object = None) -> Check:
    if not truths:
        return Check("comparisons", None, limit, None)
    truth = True if True in truths else (None if None in truths else False)
    return Check(f"comparisons.{signal}", shown, limit, truth)


def clock_makes_no_difference(e: Evidence) -> Check:
    """Does the throughput hardly follow the SM clock?

    elasticity = (1 - throughput ratio) / (1 - clock ratio), slower clock over faster.
    """
    truths: list[bool | None] = []
    shown: object = None
    for comparison in e.comparisons:
        for one, other in comparison.pairs():
            for slow, fast in ((one, other), (other, one)):
                clock = _clock(comparison, slow, fast)
                if clock is None or not clock.below(CLOCK_STEP):
                    continue
                speed = comparison.speed(slow, fast)
                if not speed.known:
                    continue
                lost = Interval(1.0 - speed.value.high, 1.0 - speed.value.low)
                lowered = Interval(1.0 - clock.high, 1.0 - clock.low)
                shown = speed.value.plain()
                truths.append(lost.over(lowered).at_most(ELASTICITY_MAX))
    return _told("sm_clock", "throughput hardly follows the SM clock", truths, shown)


def _clock(comparison: Comparison, slow: Arm, fast: Arm) -> Interval | None:
    for key in ("sm_clock_locked_ratio", "sm_clock_mhz"):
        ratio = comparison.ratio(key, slow, fast)
        if ratio.known:
            return ratio.value
    return None


def faster_card_makes_no_difference(e: Evidence) -> Check:
    """Is the same load no faster on a card with far more memory bandwidth?"""
    truths: list[bool | None] = []
    shown: object = None
    for comparison in e.comparisons:
        allowed = ("hardware.gpu", "hardware.memory_gb", "hardware.tdp_w", "hardware.interconnect")
        if "hardware.gpu" not in comparison.varied() or not comparison.varies_only(*allowed):
            continue
        for one, other in comparison.pairs():
            for fast, slow in ((one, other), (other, one)):
                above, below = _bandwidth(fast), _bandwidth(slow)
                if above is None or below is None or above < FASTER_CARD * below:
                    continue
                speed = comparison.speed(fast, slow)
                if speed.known:
                    shown = speed.value.plain()
                    truths.append(speed.value.at_most(SAME_SPEED))
    return _told("hardware.gpu", "a faster card is no faster", truths, shown)


def _bandwidth(arm: Arm) -> float | None:
    name = arm.get("hardware.gpu")
    try:
        return find_gpu(name).bandwidth_gb_per_s if isinstance(name, str) else None
    except ConfigError:
        return None


def more_load_less_gpu(e: Evidence) -> Check:
    """Does the card do less where more requests are in flight?"""
    truths: list[bool | None] = []
    shown: object = None
    for comparison in e.comparisons:
        load_keys = ("concurrency", "rate_rps", "num_requests")
        if not comparison.varies_only(*load_keys):
            continue
        for one, other in comparison.pairs():
            for more, less in ((one, other), (other, one)):
                grown = _grown(more, less)
                for key in ("sm_active_ratio", "gr_engine_active_ratio", "gpu_util_ratio"):
                    busy = comparison.ratio(key, more, less)
                    if grown and busy.known:
                        shown = busy.value.plain()
                        truths.append(busy.value.at_most(GPU_FALLS))
    return _told("gpu_util_ratio", "falls as the load grows", truths, shown)


def more_running_no_faster(e: Evidence) -> Check:
    """Do more requests in the batch bring no more throughput?

    Their number is read at the engine, so that no client or proxy keeps them out.
    """
    for comparison in e.comparisons:
        for one, other in comparison.pairs():
            for more, less in ((one, other), (other, one)):
                batch = comparison.ratio("requests_running", more, less)
                gain = comparison.throughput(more, less)
                if batch.known and gain.known and batch.value.at_least(LOAD_GROWS):
                    return gain.at_most(SAME_SPEED)
    return Check("comparisons", None, "no more throughput of a larger batch", None)


def _grown(more: Arm, less: Arm) -> bool | None:
    for key in ("concurrency", "rate_rps", "requests_running"):
        high, low = more.number(key), less.number(key)
        if high.known and low.known:
            return high.value.exceeds(low.value.times(Interval(LOAD_GROWS, LOAD_GROWS)))
    return None


def separate_server_is_faster(e: Evidence) -> Check:
    """Is an API server in its own process faster than one in the engine's?"""
    pairs = speeds(
        e,
        "api_server_mode",
        lambda arm: _is_mode(arm, "in_process"),
        also=("engine.version", "engine.variant", "api_server_count"),
        starves_gpu=True,
    )
    return effect_check(pairs, GAIN)


def offline_is_faster(e: Evidence, mode: str) -> Check:
    """Is the engine without an HTTP server faster than with one of that mode?"""
    pairs = speeds(
        e,
        "api_server_mode",
        lambda arm: {mode: True, "none": False}.get(arm.get("api_server_mode") or ""),
        also=("kind",),
        starves_gpu=True,
    )
    return effect_check(pairs, 0.8)


def _is_mode(arm: Arm, mode: str) -> bool | None:
    known = arm.get("api_server_mode")
    if known not in ("in_process", "separate_process"):
        return None
    return bool(known == mode)


def penalties_slow(e: Evidence) -> Check:
    """Do sampling penalties cost a large part, or some of it while the card idles?"""
    pairs = speeds(
        e,
        "sampling_penalties",
        lambda arm: value if isinstance(value := arm.get("sampling_penalties"), bool) else None,
        starves_gpu=True,
    )
    return either(effect_check(pairs, PENALTY_FACTOR), both(effect_check(pairs, GAIN), gpu_idle(e)))
