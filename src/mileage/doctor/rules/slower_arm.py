"""Is one arm slower than another, by more than repeated runs of one setup differ?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mileage.doctor.arms import Arm, Ratio
from mileage.doctor.check import Check
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval

__all__ = [
    "NOISE_RATIO",
    "any_slower",
    "is_slower",
    "larger_than",
    "share_lost",
    "smaller_than",
    "without_doubt",
]

NOISE_RATIO = 0.03
"""Two runs of one serving benchmark differ by about 2 %; measured differences below are noise."""


def is_slower(ratio: Ratio) -> Check:
    """Is the speed ratio below 1: by more than noise where measured, at all where it is a bound?"""
    value = ratio.value
    truth: bool | None = None
    if ratio.known:
        truth = value.at_most(1.0 - NOISE_RATIO)
        if truth is not True and value.high - value.low > NOISE_RATIO and value.high < 1.0:
            truth = True
    signal = f"comparisons.{ratio.signal}" if ratio.known else "comparisons"
    shown = value.plain() if ratio.known else None
    return Check(signal, shown, "slower than the other arm", truth)


def any_slower(pairs: Iterable[Contrast]) -> Check:
    """Is `one` slower than `other` in one of the pairs? Not known where there are none."""
    checks = [is_slower(pair.speed) for pair in pairs if pair.speed.known]
    for wanted in (True, None, False):
        for check in checks:
            if check.truth is wanted:
                return check
    return Check("comparisons", None, "slower than the other arm", None)


def share_lost(pairs: Iterable[Contrast]) -> Interval | None:
    """Share of the work that `one` loses to `other`, in the pair where it loses most."""
    speeds = [pair.speed.value for pair in pairs if pair.speed.known]
    if not speeds:
        return None
    worst = min(speeds, key=lambda speed: speed.middle).clipped(0.0, 1.0)
    return Interval(1.0 - worst.high, 1.0 - worst.low)


def without_doubt(pairs: Iterable[Contrast]) -> tuple[Contrast, ...]:
    """Those pairs that differ in nothing else."""
    return tuple(pair for pair in pairs if not pair.besides)


def smaller_than(e: Evidence, key: str, *about: str) -> tuple[Contrast, ...]:
    """Pairs that differ in a number alone: `one` has less of it than `other`."""
    return _ordered(e, key, about, lambda one, other: other.exceeds(one))


def larger_than(e: Evidence, key: str, *about: str) -> tuple[Contrast, ...]:
    """Pairs that differ in a number alone: `one` has more of it than `other`."""
    return _ordered(e, key, about, lambda one, other: one.exceeds(other))


def _ordered(
    e: Evidence,
    key: str,
    about: tuple[str, ...],
    in_order: Callable[[Interval, Interval], bool | None],
) -> tuple[Contrast, ...]:
    def known(arm: Arm) -> bool:
        return arm.number(key).known

    return tuple(
        pair
        for pair in without_doubt(contrasts(e, known, known, key, *about))
        if in_order(pair.one.number(key).value, pair.other.number(key).value)
    )
