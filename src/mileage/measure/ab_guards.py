"""What could make the difference between two arms mean something else than the arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from mileage.measure.arm_slot import SlotFigures
from mileage.measure.comparison import BLOCKS_MIN, p_of_mean
from mileage.measure.distributions import chi_square_p, t_p
from mileage.measure.record_latency import Floats
from mileage.measure.run_figures import CENSORED

__all__ = [
    "AbFacts",
    "Guard",
    "Pair",
    "always_first",
    "arms_got_different_requests",
    "blocks_depend",
    "cache_differs",
    "effect_drifts",
    "order_matters",
    "pairs_of",
    "sample_ratio",
    "standing_guards",
]

LEVEL = 0.001
"""Level of each test here: they are many, and few of them may fire where nothing is wrong."""


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """A confounder that was found."""

    name: str
    invalid: bool
    """Whether no verdict can be given; else it is told beside it."""
    text: str


class AbFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the run saw beside its requests."""

    restarts: tuple[str, ...] = ()
    """Servers that restarted during the run, in words."""
    generator_limited: str | None = None
    """Why the load generator, not the server, was the limit; None: it was not."""
    unsteady: tuple[str, ...] = ()
    """Arms in which load grew faster than it was served, in words."""
    cache_is_the_effect: bool = False
    """The arms are meant to differ in their caches, so that is no confounder."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The two arms in one block."""

    a: SlotFigures
    b: SlotFigures


def pairs_of(slots: Sequence[SlotFigures]) -> list[Pair]:
    """The blocks that have both arms, in order. Raises ValueError where an arm has two slots."""
    found: dict[int, dict[str, SlotFigures]] = {}
    for slot in slots:
        if slot.arm in found.setdefault(slot.block, {}):
            raise ValueError(f"block {slot.block} has arm {slot.arm} twice")
        found[slot.block][slot.arm] = slot
    return [Pair(a=arms["a"], b=arms["b"]) for _, arms in sorted(found.items()) if len(arms) == 2]


def standing_guards(pairs: Sequence[Pair], facts: AbFacts) -> list[Guard]:
    """The guards that are the same for all metrics; those that found nothing are left out."""
    found = [
        Guard(name="restart", invalid=True, text=f"{what} restarted during the run")
        for what in facts.restarts
    ]
    if facts.generator_limited is not None:
        text = f"the load generator was the limit: {facts.generator_limited}"
        found.append(Guard(name="generator_limited", invalid=True, text=text))
    found += [Guard(name="not_steady", invalid=True, text=what) for what in facts.unsteady]
    if len(pairs) < BLOCKS_MIN:
        text = f"{len(pairs)} blocks with both arms, at least {BLOCKS_MIN} are needed"
        return [*found, Guard(name="too_few_blocks", invalid=True, text=text)]
    checks = [
        sample_ratio(pairs),
        arms_got_different_requests(pairs),
        None if facts.cache_is_the_effect else cache_differs(pairs),
        _many_failed(pairs),
    ]
    return found + [guard for guard in checks if guard is not None]


def sample_ratio(pairs: Sequence[Pair]) -> Guard | None:
    """Whether the arms got requests in proportion to their time.

    A split of one stream of arrivals: chi-square of the counts against 50/50. Slots beside each
    other: Student's t over blocks of the log ratio of rates, since traffic comes in bursts that a
    count's own variance does not know.
    """
    a, b = (sum(s.figures.requests for s in arm) for arm in _arms(pairs))
    if a + b == 0:
        return Guard(name="no_requests", invalid=True, text="no request was scheduled")
    if all(pair.a.order is None for pair in pairs):
        p_value = chi_square_p((a - b) ** 2 / (a + b), 1)
    elif min(min(p.a.figures.requests, p.b.figures.requests) for p in pairs) == 0:
        p_value = 1.0 if min(a, b) else 0.0
    else:
        p_value = p_of_mean(_changes(pairs, lambda s: s.figures.requests / s.figures.window_s))
        if abs(a - b) <= 0.01 * (a + b):
            return None
    if p_value >= LEVEL:
        return None
    text = f"arm a got {a} requests and arm b {b}: more unlike than chance makes them"
    return Guard(name="sample_ratio", invalid=True, text=text)


def arms_got_different_requests(pairs: Sequence[Pair]) -> Guard | None:
    """Whether the prompts that the arms were sent differ in length beyond chance and by 1 %."""
    told = [p for p in pairs if p.a.prompt_tokens_mean and p.b.prompt_tokens_mean]
    if len(told) < BLOCKS_MIN:
        return None
    changes = _changes(told, lambda s: s.prompt_tokens_mean or math.nan)
    mean = float(changes.mean())
    if abs(mean) <= 0.01 or p_of_mean(changes) >= LEVEL:
        return None
    text = f"prompts of arm b were {100 * math.expm1(mean):+.1f} % as long as those of arm a"
    return Guard(name="different_requests", invalid=True, text=text)


def cache_differs(pairs: Sequence[Pair]) -> Guard | None:
    """Whether the share of cached prompt tokens differs by more than two points beyond chance.

    It decides where the second slot of a block, whichever arm it is, finds the warmer cache and
    the arms did not come first equally often; else it is told, as it may be the arms' own doing.
    """
    told = [
        p
        for p in pairs
        if p.a.figures.cached_tokens_ratio is not None
        and p.b.figures.cached_tokens_ratio is not None
    ]
    if len(told) < BLOCKS_MIN:
        return None
    a, b = (np.array([s.figures.cached_tokens_ratio for s in arm]) for arm in _arms(told))
    if abs(float((b - a).mean())) <= 0.02 or p_of_mean(b - a) >= LEVEL:
        return None
    signs = _signs(told)
    second = (b - a) * signs
    warmed = bool(signs.all()) and second.mean() > 0.02 and p_of_mean(second) < LEVEL
    text = f"prompt tokens found in the cache: arm a {a.mean():.1%}, arm b {b.mean():.1%}"
    if warmed and abs(signs.sum()) > 1:
        text += "; the slot that came second was the warmer one, and the arms did not take turns"
        return Guard(name="warm_cache", invalid=True, text=text)
    return Guard(name="cache_differs", invalid=False, text=text)


def always_first(pairs: Sequence[Pair]) -> Guard | None:
    """Whether the same arm came first in every block."""
    signs = _signs(pairs)
    if len(signs) < BLOCKS_MIN or abs(signs.sum()) < len(signs):
        return None
    text = "one arm always came first: the order and the arms cannot be told apart"
    return Guard(name="order", invalid=True, text=text)


def order_matters(pairs: Sequence[Pair], changes: Floats) -> Guard | None:
    """Whether the slot that came second did otherwise than the first, whichever arm it was.

    `changes` are the log ratios b / a, one a block. Where each arm came first equally often that
    is no bias, and only widens the interval; else there is no verdict.
    """
    signs = _signs(pairs)
    if len(changes) < BLOCKS_MIN or not signs.all():
        return None
    turns = abs(float(signs.sum()))
    stuck = always_first(pairs)
    if stuck is not None:
        return stuck
    fair = _means_differ(changes[signs > 0], changes[signs < 0])
    if fair >= LEVEL:
        return None
    shift = float(changes[signs > 0].mean() - changes[signs < 0].mean()) / 2.0
    text = f"the second slot of a block differs from its first by {100 * math.expm1(shift):+.1f} %"
    return Guard(name="order", invalid=turns > max(1.0, 0.2 * len(signs)), text=text)


def effect_drifts(changes: Floats) -> Guard | None:
    """Whether the log ratios b / a have a straight trend over the blocks (t of its slope)."""
    n = len(changes)
    if n < 6:
        return None
    x = np.arange(n) - (n - 1) / 2.0
    slope = float(x @ changes) / float(x @ x)
    rest = changes - changes.mean() - slope * x
    error = math.sqrt(float(rest @ rest) / (n - 2) / float(x @ x))
    if error == 0.0 or t_p(slope / error, n - 2) >= LEVEL:
        return None
    text = f"the difference drifts by {100 * math.expm1(slope * (n - 1)):+.1f} % over the run"
    return Guard(name="drift", invalid=False, text=text)


def blocks_depend(changes: Floats) -> Guard | None:
    """Whether blocks that follow each other are alike: the lag-1 autocorrelation is positive.

    Then they are fewer independent looks than they seem, and the interval is too narrow. Under
    independence the coefficient has mean -1/n and about 1/n of variance.
    """
    n = len(changes)
    centred = changes - changes.mean()
    total = float(centred @ centred)
    if n < 8 or total == 0.0:
        return None
    lag = float(centred[1:] @ centred[:-1]) / total
    if (lag + 1.0 / n) * math.sqrt(n) < 3.09:
        return None
    text = f"blocks depend on the ones before them (correlation {lag:.2f}): make them longer"
    return Guard(name="blocks_depend", invalid=True, text=text)


def _many_failed(pairs: Sequence[Pair]) -> Guard | None:
    slots = [slot for arm in _arms(pairs) for slot in arm]
    hidden = sum(
        n for slot in slots for name, n in slot.figures.requests_failed.items() if name in CENSORED
    )
    total = sum(slot.figures.requests - slot.figures.requests_cancelled for slot in slots)
    if total == 0 or hidden <= 0.01 * total:
        return None
    text = f"{hidden / total:.1%} of all requests have no latency, as they were given up or cut"
    return Guard(name="censored", invalid=False, text=text)


def _arms(pairs: Sequence[Pair]) -> tuple[list[SlotFigures], list[SlotFigures]]:
    return [p.a for p in pairs], [p.b for p in pairs]


def _changes(pairs: Sequence[Pair], figure: Callable[[SlotFigures], float]) -> Floats:
    return np.array([math.log(figure(p.b) / figure(p.a)) for p in pairs])


def _signs(pairs: Sequence[Pair]) -> Floats:
    """+1 where arm b came second, -1 where it came first, 0 where both ran at once."""
    return np.array([{None: 0.0, 0: -1.0, 1: 1.0}[p.b.order] for p in pairs])


def _means_differ(a: Floats, b: Floats) -> float:
    """Two-sided p-value of Student's t for two samples of one variance; 1 for too small ones."""
    df = len(a) + len(b) - 2
    if min(len(a), len(b)) < 2 or df < 2:
        return 1.0
    apart = float(a.mean() - b.mean())
    squares = float(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
    error = math.sqrt(squares / df * (1.0 / len(a) + 1.0 / len(b)))
    if error == 0.0:
        return 1.0 if apart == 0.0 else 0.0
    return t_p(apart / error, df)
