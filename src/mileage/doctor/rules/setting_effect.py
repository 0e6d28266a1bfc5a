"""What a setting does: how fast arms with a fault are beside those without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mileage.doctor.arms import Arm, Comparison, Ratio
from mileage.doctor.check import Check
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval

__all__ = [
    "effect_check",
    "free_of_effect",
    "gain_check",
    "loss_of_effect",
    "no_gain",
    "speeds",
    "with_more",
]

BUSIER = 1.2
"""Ratio of two utilisations from which the difference is no noise of the sampling."""


def speeds(
    e: Evidence,
    key: str,
    faulty: Callable[[Arm], bool | None],
    also: tuple[str, ...] = (),
    *,
    starves_gpu: bool = False,
) -> tuple[Ratio, ...]:
    """How many times the speed of an arm without the fault an arm with it has, for each pair.

    Only arms that differ in `key`, and in nothing else but `also`, tell it. Of a fault that
    `starves_gpu` a far lower utilisation tells as much where no speed is known.
    """
    found = []
    for comparison, one, other in _pairs(e, key, also):
        first, second = faulty(one), faulty(other)
        if first is None or second is None or first == second:
            continue
        with_fault, without = (one, other) if first else (other, one)
        ratio = _speed(comparison, with_fault, without, starves_gpu)
        if ratio.known:
            found.append(ratio)
    return tuple(found)


def with_more(
    e: Evidence,
    key: str,
    *,
    factor: float = 1.0,
    also: tuple[str, ...] = (),
    starves_gpu: bool = False,
) -> tuple[Ratio, ...]:
    """How many times the speed of the arm with less of `key` the arm with more of it has."""
    found = []
    for comparison, one, other in _pairs(e, key, also):
        for more, less in ((other, one), (one, other)):
            high, low = more.number(key), less.number(key)
            if not high.known or not low.known:
                continue
            grown = high.value.exceeds(low.value.times(Interval(factor, factor)))
            ratio = _speed(comparison, more, less, starves_gpu)
            if grown and ratio.known:
                found.append(ratio)
    return tuple(found)


def effect_check(ratios: tuple[Ratio, ...], limit: float) -> Check:
    """Is the faulty arm slower than `limit` times the other in one of the pairs?"""
    return _worst(ratios).below(limit)


def free_of_effect(ratios: tuple[Ratio, ...], limit: float) -> Check:
    """Is the faulty arm at least `limit` times as fast as the other in every pair?"""
    return _worst(ratios).at_least(limit)


def gain_check(ratios: tuple[Ratio, ...], limit: float) -> Check:
    """Is the arm with more of it faster than `limit` times the other in one of the pairs?"""
    return _best(ratios).above(limit)


def no_gain(ratios: tuple[Ratio, ...], limit: float) -> Check:
    """Is the arm with more of it at most `limit` times as fast in every pair?"""
    return _best(ratios).at_most(limit)


def loss_of_effect(ratios: tuple[Ratio, ...]) -> Interval | None:
    """Share of the work that the fault costs: 1 - slower / faster; None where no pair tells."""
    if not ratios:
        return None
    ratio = _worst(ratios).value.clipped(0.0, 1.0)
    return Interval(1.0 - ratio.high, 1.0 - ratio.low)


def _worst(ratios: tuple[Ratio, ...]) -> Ratio:
    return min(ratios, key=lambda ratio: ratio.value.middle, default=Ratio("", Interval()))


def _best(ratios: tuple[Ratio, ...]) -> Ratio:
    return max(ratios, key=lambda ratio: ratio.value.middle, default=Ratio("", Interval()))


def _speed(comparison: Comparison, of: Arm, to: Arm, starves_gpu: bool) -> Ratio:
    """How many times faster; where no speed is told, and asked for, how much busier the GPU is.

    A card that waits for the CPU is slower by as much. That it is as busy as before says
    nothing: utilisation is at its end before the speed is.
    """
    speed = comparison.speed(of, to)
    if speed.known or not starves_gpu:
        return speed
    for key in ("sm_active_ratio", "gr_engine_active_ratio", "gpu_util_ratio"):
        busy = comparison.ratio(key, of, to)
        if busy.known and (busy.value.below(1.0 / BUSIER) or busy.value.above(BUSIER)):
            return busy
    return speed


def _pairs(e: Evidence, key: str, also: tuple[str, ...]) -> Iterator[tuple[Comparison, Arm, Arm]]:
    """Every two arms that differ in `key`, and in nothing else that is no signal but `also`."""
    absent = object()
    for comparison in e.comparisons:
        for one, other in comparison.pairs():
            differ = {
                name
                for name in (*one.setup(), *other.setup())
                if one.values.get(name, absent) != other.values.get(name, absent)
            }
            if key in differ and differ <= {key, *also}:
                yield comparison, one, other
