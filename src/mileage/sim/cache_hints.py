"""Hints of a stated accuracy: what callers who know whether a conversation goes on would tell."""

from __future__ import annotations

import random

import msgspec

from mileage.core.bounds import require_range
from mileage.sim.cache_trace import CacheTrace

__all__ = ["HintQuality", "made_hints", "returns"]


class HintQuality(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How good hints are. Raises ConfigError for what cannot be."""

    right_ratio: float
    """The share of hints that are right."""
    claimed_ratio: float | None = None
    """The share that the callers believe to be right; None: they know it."""
    known_ratio: float = 1.0
    """The share of requests with a hint."""

    def __post_init__(self) -> None:
        require_range("hints.right_ratio", self.right_ratio, 0.0, 1.0)
        if self.claimed_ratio is not None:
            require_range("hints.claimed_ratio", self.claimed_ratio, 0.0, 1.0)
        require_range("hints.known_ratio", self.known_ratio, 0.0, 1.0)


def returns(trace: CacheTrace) -> list[bool]:
    """Whether a later request goes on from each: has all of its full blocks, of which it has any.

    A prompt without a full block cannot be gone on from, as far as a cache is concerned.
    """
    found = [False] * len(trace)
    later: set[int] = set()
    for number in range(len(trace) - 1, -1, -1):
        chain, whole = trace.chains[number], trace.uses[number].whole
        # Whoever has the last full block has those before it.
        found[number] = whole > 0 and chain[whole - 1] in later
        later.update(chain)
    return found


def made_hints(trace: CacheTrace, quality: HintQuality, rng: random.Random) -> list[float | None]:
    """A probability of return for each request, or None: for `CacheTrace.with_hints`.

    Callers tell yes or no, rightly in `right_ratio` of the cases, as the chance that this means by
    Bayes' rule if they are right in `claimed_ratio` of the cases.
    """
    truth = returns(trace)
    mean = sum(truth) / len(truth)
    claimed = quality.right_ratio if quality.claimed_ratio is None else quality.claimed_ratio
    said = {True: _posterior(mean, claimed), False: _posterior(mean, 1.0 - claimed)}
    hints: list[float | None] = []
    for goes_on in truth:
        answer = said[goes_on == (rng.random() < quality.right_ratio)]
        hints.append(answer if rng.random() < quality.known_ratio else None)
    return hints


def _posterior(mean: float, right: float) -> float:
    """The chance of return after a yes that comes so often where there is one, or a false one."""
    yes, false = right * mean, (1.0 - right) * (1.0 - mean)
    return yes / (yes + false) if yes + false else mean
