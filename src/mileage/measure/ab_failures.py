"""Failures of two arms: whether one failed more often, and what that makes of its latencies."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from mileage.measure.ab_guards import Guard, Pair, always_first, blocks_depend
from mileage.measure.arm_slot import SlotFigures
from mileage.measure.comparison import BLOCKS_MIN, Comparison, p_of_mean
from mileage.measure.distributions import binomial_p

__all__ = ["FAILURES", "any_failed", "compare_failures", "failure_guards", "is_suspicious"]

FAILURES = "failed_ratio"
"""The metric's name."""

APART_MIN = 0.002
"""Shares that are less apart do not matter to anybody, however sure the difference is."""


def any_failed(pairs: Sequence[Pair]) -> bool:
    """Whether any request failed. Exchanging the arms of a block does not change that, so a test
    that is made only where it is true keeps its level, and costs nothing where it is not."""
    return any(_failed(slot) for pair in pairs for slot in (pair.a, pair.b))


def compare_failures(pairs: Sequence[Pair], *, level: float) -> Comparison:
    """Compare the shares of requests that failed; those of requests cut at the end left out.

    The p-value is the larger of two. Student's t over the blocks' differences knows that failures
    come in clumps, but takes few failures that happen to fall alike for a law; the exact binomial
    test of all failures, given how many requests each arm had, is the other way round.
    """
    told = [pair for pair in pairs if _lasting(pair.a) and _lasting(pair.b)]
    a, b = (np.array([_share(s) for s in arm]) for arm in _arms(told))
    found = Comparison(
        metric=FAILURES,
        better="lower",
        a=float(a.mean()) if told else None,
        b=float(b.mean()) if told else None,
        ratio=float(b.mean() / a.mean()) if a.any() else None,
        ci95=None,
        ci95_alone=None,
        p_value=None,
        level=level,
        blocks=len(told),
        blocks_left_out=len(pairs) - len(told),
        detectable_ratio=None,
        verdict="invalid",
        text=f"{FAILURES}: not compared: {len(told)} blocks have it, {BLOCKS_MIN} are needed.",
    )
    if len(told) < BLOCKS_MIN:
        return found
    p_value = max(p_of_mean(b - a), _p_of_counts(told))
    shares = f"{_percent(b.mean())} of its requests failed, and {_percent(a.mean())} of a's"
    apart = float((b - a).mean())
    if abs(apart) <= APART_MIN or p_value >= level:
        text = f"{FAILURES}: no difference seen: of b {shares}."
        return msgspec.structs.replace(found, p_value=p_value, verdict="no_difference", text=text)
    word, flattered = ("worse", "b") if apart > 0 else ("better", "a")
    text = f"{FAILURES}: b is {word}: {shares}."
    if max(a.mean(), b.mean()) < 1.0:
        text += f" Latencies are those of requests that ended well, so they flatter {flattered}."
    return msgspec.structs.replace(
        found,
        p_value=p_value,
        verdict="worse" if apart > 0 else "better",
        text=text,
    )


def is_suspicious(failures: Comparison) -> bool:
    """Whether the shares are so far apart that a run should not end before it is clear why."""
    if failures.a is None or failures.b is None or failures.p_value is None:
        return False
    return abs(failures.b - failures.a) > APART_MIN and failures.p_value < 0.05


def failure_guards(pairs: Sequence[Pair]) -> list[Guard]:
    """What else than the arms may have made a difference in failures."""
    told = [pair for pair in pairs if _lasting(pair.a) and _lasting(pair.b)]
    apart = np.array([_share(pair.b) - _share(pair.a) for pair in told])
    found = (always_first(told), blocks_depend(apart))
    return [
        msgspec.structs.replace(guard, text=f"{FAILURES}: {guard.text}")
        for guard in found
        if guard is not None
    ]


def _p_of_counts(pairs: Sequence[Pair]) -> float:
    failed_a, failed_b = (sum(_failed(s) for s in arm) for arm in _arms(pairs))
    lasting_a, lasting_b = (sum(_lasting(s) for s in arm) for arm in _arms(pairs))
    return binomial_p(failed_b, failed_a + failed_b, lasting_b / (lasting_a + lasting_b))


def _percent(share: float) -> str:
    percent = 100.0 * share
    return f"{percent:.2g} %" if percent < 10.0 else f"{percent:.0f} %"


def _arms(pairs: Sequence[Pair]) -> tuple[list[SlotFigures], list[SlotFigures]]:
    return [p.a for p in pairs], [p.b for p in pairs]


def _failed(slot: SlotFigures) -> int:
    return sum(slot.figures.requests_failed.values())


def _lasting(slot: SlotFigures) -> int:
    return slot.figures.requests - slot.figures.requests_cancelled


def _share(slot: SlotFigures) -> float:
    return _failed(slot) / _lasting(slot)
