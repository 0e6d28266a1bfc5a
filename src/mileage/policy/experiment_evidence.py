"""ExperimentEvidence: how sure it is by now that arm b is worse than arm a, looked at any time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

__all__ = [
    "MEASURES",
    "ArmCounts",
    "ExperimentEvidence",
    "Measure",
    "added",
    "since",
    "slow_bucket",
]

MEASURES = ("errors", "targets", "ttft", "itl", "e2e")
Measure = str
"""One of MEASURES."""

_ODDS = (2.0, 5.0, 20.0)
"""How many times as likely an error may be in arm b: what the test bets on, in equal parts."""
_STAKES = (0.5, 0.9)
"""Parts of its capital that the sign test bets on each block."""
_SPREAD = 1.5
_SPREAD_SUM = 2.612375348685488
"""The sum of k^-1.5 over all k: Riemann's zeta at 1.5."""
_CAPITAL_MAX = 1e12
_LOG_MAX = 60.0
_SLOW_QUANTILE = 0.75
_REFERENCE_MIN = 20


class ArmCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of one arm since some moment. `missed` of `judged` requests missed their targets.

    `ttft`, `itl` and `e2e` are counts of requests by bucket of seconds; both arms have the same
    buckets. Empty: nothing was seen.
    """

    requests: int = 0
    errors: int = 0
    judged: int = 0
    missed: int = 0
    ttft: tuple[int, ...] = ()
    itl: tuple[int, ...] = ()
    e2e: tuple[int, ...] = ()


def since(now: ArmCounts, before: ArmCounts) -> ArmCounts:
    """What came between two totals."""
    return _combined(now, before, -1)


def added(one: ArmCounts, other: ArmCounts) -> ArmCounts:
    """Both together."""
    return _combined(one, other, 1)


def _combined(one: ArmCounts, other: ArmCounts, sign: int) -> ArmCounts:
    def buckets(mine: tuple[int, ...], its: tuple[int, ...]) -> tuple[int, ...]:
        if not its:
            return mine
        mine = mine or (0,) * len(its)
        return tuple(m + sign * i for m, i in zip(mine, its, strict=True))

    return ArmCounts(
        requests=one.requests + sign * other.requests,
        errors=one.errors + sign * other.errors,
        judged=one.judged + sign * other.judged,
        missed=one.missed + sign * other.missed,
        ttft=buckets(one.ttft, other.ttft),
        itl=buckets(one.itl, other.itl),
        e2e=buckets(one.e2e, other.e2e),
    )


class _Gambler:
    """Bets on b being worse, from a moment that it does not know.

    It stakes its capital bit by bit: at the k-th bet in proportion to k^-1.5, all together 1. What
    it staked first shows what was worse from the start, and what it still has shows what becomes
    worse later, where the first stakes are long lost. A mixture of fair games is a fair game.
    """

    __slots__ = ("_bets", "_reserve", "_staked")

    def __init__(self, ways: int) -> None:
        self._staked = [0.0] * ways
        self._reserve = 1.0
        self._bets = 0

    @property
    def capital(self) -> float:
        return self._reserve + sum(self._staked) / len(self._staked)

    def bet(self, factors: Sequence[float]) -> None:
        """One bet in several ways, each with so much of the stake coming back."""
        self._bets += 1
        stake = min(self._reserve, self._bets**-_SPREAD / _SPREAD_SUM)
        self._reserve -= stake
        self._staked = [
            min((staked + stake) * factor, _CAPITAL_MAX)
            for staked, factor in zip(self._staked, factors, strict=True)
        ]


class ExperimentEvidence:
    """A test by betting (Ville 1939; Shafer 2021; Ramdas et al. 2023), over blocks of time.

    For each measure a gambler bets that arm b is worse, at odds that are fair while it is not: its
    capital, 1 at first, then has a mean of 1 at most, and so has the mean of all five. By Ville's
    inequality that mean ever reaches 1 / p with a probability of p at most, however often one looks
    and whenever one stops. So `value` >= 20 keeps false alarms to 5 % over the whole experiment.

    errors: arms are drawn, so an error that has nothing to do with them is in arm b as often as a
    request is; the bet is on more, by likelihood ratios over a few odds. Nothing is assumed of when
    errors come: they may come in bursts. Where groups of requests are drawn as one (`grouped`:
    tenants, conversations, slots of time), a group that fails has all of its errors in one arm.
    Then a block has one error, any of those in it: the bet is linear in b's share of them, and so
    is fair however they hang together. It still takes blocks for independent: a tenant that fails
    for hours for reasons of its own is not told from its arm.

    targets, ttft, itl, e2e: requests that share a queue are slow together, so no request is a trial
    by itself. The whole block is: it counts against b where its share of requests that missed their
    targets, or took longer than three quarters of arm a's did before this block, is above arm a's
    by more than `tolerance_ratio`; otherwise for it. Where the arms are equal the first happens in
    half of the blocks at most.
    """

    def __init__(self, *, tolerance_ratio: float, grouped: bool = False) -> None:
        self._tolerance_ratio = tolerance_ratio
        self._ratio_of_errors = _one_error_ratio if grouped else _likelihood_ratio
        self._reference = ArmCounts()
        self._gamblers: dict[Measure, _Gambler] = {
            name: _Gambler(len(_ODDS if name == "errors" else _STAKES)) for name in MEASURES
        }
        self.blocks = 0

    @property
    def by_measure(self) -> dict[Measure, float]:
        """The capital of each bet; above 1: there is something to it."""
        return {name: gambler.capital for name, gambler in self._gamblers.items()}

    @property
    def value(self) -> float:
        """The mean capital."""
        capitals = self.by_measure
        return sum(capitals.values()) / len(capitals)

    @property
    def worst(self) -> Measure:
        """The measure that speaks most against arm b."""
        capitals = self.by_measure
        return max(capitals, key=lambda name: capitals[name])

    def block(self, a: ArmCounts, b: ArmCounts) -> None:
        """Take in what both arms did in one block of time."""
        self.blocks += 1
        if a.requests and b.requests and (a.errors or b.errors):
            self._gamblers["errors"].bet([self._ratio_of_errors(a, b, odds) for odds in _ODDS])
        if a.judged and b.judged:
            self._bet("targets", b.missed / b.judged - a.missed / a.judged)
        for name in MEASURES[2:]:
            of_a, of_b = getattr(a, name), getattr(b, name)
            bucket = slow_bucket(getattr(self._reference, name))
            if bucket is not None and sum(of_a) and sum(of_b):
                self._bet(name, _slow_share(of_b, bucket) - _slow_share(of_a, bucket))
        self._reference = added(self._reference, a)

    def _bet(self, name: Measure, excess: float) -> None:
        worse = excess > self._tolerance_ratio
        self._gamblers[name].bet([1.0 + s if worse else 1.0 - s for s in _STAKES])


def _likelihood_ratio(a: ArmCounts, b: ArmCounts, odds: float) -> float:
    """How many times as likely the errors lie as they do, if b's were `odds` times as likely."""
    share = b.requests / (a.requests + b.requests)
    told = share * odds / (share * odds + 1.0 - share)
    log = b.errors * math.log(told / share) + a.errors * math.log((1.0 - told) / (1.0 - share))
    return math.exp(min(log, _LOG_MAX))


def _one_error_ratio(a: ArmCounts, b: ArmCounts, odds: float) -> float:
    """The mean, over the errors of a block, of the likelihood ratio of that error alone."""
    share = b.requests / (a.requests + b.requests)
    of_b = b.errors / (a.errors + b.errors)
    return (of_b * odds + 1.0 - of_b) / (share * odds + 1.0 - share)


def slow_bucket(counts: Sequence[int]) -> int | None:
    """The first bucket above three quarters of the requests; None: too few to tell."""
    total = sum(counts)
    if total < _REFERENCE_MIN:
        return None
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if seen >= _SLOW_QUANTILE * total:
            return bucket + 1
    return None


def _slow_share(counts: Sequence[int], bucket: int) -> float:
    return sum(counts[bucket:]) / sum(counts)
