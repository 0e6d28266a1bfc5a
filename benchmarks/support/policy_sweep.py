"""Sweeps: the best fixed limits of an engine in a cell, found by trying them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.support.policy_arms import Arm, static_arm
from benchmarks.support.policy_capacity import Capacity, Judge, capacity
from benchmarks.support.policy_cells import Cell

__all__ = ["best_rejecting", "best_static"]

_BUDGETS = (256, 128, 64, 512, 1024, 2048, 4096, 8192, 192, 96, 384, 768, 1536)
_RUNNING = (32, 64, 16, 128, 24, 48, 96, 8, 12, 192, 256)
_LONG = (None, 128, 256, 512, 1024)
_FINER = (1.5, 0.75)
_COARSE = (2.0, 0.5)
_WORTH = 1.03
"""What does not do better by so much is no improvement."""
_NEAR = 0.9
_MEASURED = 6
_ROUNDS_MAX = 4
_FIRST_GUESS_RPS = 1.0


def best_static(judge: Judge, cell: Cell) -> Capacity:
    """Over a grid of (step tokens, requests): all are screened without noise, and those that come
    out best are measured."""
    screened: list[Capacity] = []
    best_rps = 0.0
    for step_tokens in _BUDGETS:
        for running in _RUNNING:
            if running > step_tokens:
                continue
            arm = static_arm(step_tokens, running)
            found = capacity(
                partial(judge.screened, cell, arm),
                arm,
                guess_rps=best_rps or _FIRST_GUESS_RPS,
                least_rps=_NEAR * best_rps,
            )
            if found.rate_rps:
                screened.append(found)
                best_rps = max(best_rps, found.rate_rps)
    screened.sort(key=lambda found: -found.rate_rps)
    best: Capacity | None = None
    for each in screened[:_MEASURED] or [Capacity(static_arm(256, 32), 0.0, None, 0)]:
        best = _better(judge, cell, each.arm, best, guess_rps=each.rate_rps)
    assert best is not None
    return best


def best_rejecting(judge: Judge, cell: Cell, static: Capacity) -> Capacity:
    """From the best limits without rejection on, to wherever a change of one of the three
    (step tokens, requests, tokens of a long prompt) makes it better."""
    arm = static.arm
    first: Capacity | None = None
    for long_prefill in _LONG:
        for ratio in (1, 4):
            step_tokens = min(_BUDGETS[-1], ratio * arm.step_tokens)
            if long_prefill is None or long_prefill < step_tokens:
                wanted = static_arm(
                    step_tokens, arm.running, rejecting=True, long_prefill=long_prefill
                )
                first = _better(judge, cell, wanted, first, guess_rps=static.rate_rps)
    assert first is not None
    return _climb(judge, cell, first, _neighbours)


def _better(
    judge: Judge, cell: Cell, arm: Arm, best: Capacity | None, *, guess_rps: float = 0.0
) -> Capacity:
    """The arm's capacity where it is clearly higher than the best one so far; else that."""
    least = 0.0 if best is None else _WORTH * best.rate_rps
    found = capacity(
        partial(judge.point, cell, arm),
        arm,
        guess_rps=1.1 * least or guess_rps or _FIRST_GUESS_RPS,
        least_rps=least,
    )
    return found if best is None or found.rate_rps > best.rate_rps else best


def _climb(
    judge: Judge, cell: Cell, best: Capacity, moves: Callable[[Arm], Iterator[Arm]]
) -> Capacity:
    """Go to a better neighbour until there is none."""
    tried = {best.arm}
    for _ in range(_ROUNDS_MAX):
        before = best
        for arm in moves(before.arm):
            if arm not in tried:
                tried.add(arm)
                best = _better(judge, cell, arm, best)
        if best is before:
            break
    return best


def _neighbours(arm: Arm) -> Iterator[Arm]:
    yield from _scaled(arm, (*_COARSE, *_FINER))
    for long_prefill in _LONG:
        if long_prefill is None or long_prefill < arm.step_tokens:
            yield static_arm(
                arm.step_tokens, arm.running, rejecting=True, long_prefill=long_prefill
            )


def _scaled(arm: Arm, ratios: tuple[float, ...]) -> Iterator[Arm]:
    rejecting = arm.policy is not None
    for ratio in ratios:
        pairs = (
            (round(ratio * arm.step_tokens), arm.running),
            (arm.step_tokens, round(ratio * arm.running)),
        )
        for step_tokens, running in pairs:
            if 1 <= running <= step_tokens <= _BUDGETS[-1] and running <= 1024:
                long = arm.long_prefill_tokens
                if long is None or long < step_tokens:
                    yield static_arm(step_tokens, running, rejecting=rejecting, long_prefill=long)
