"""Routing: which replica gets the request."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.policy.cached_prefixes import BLOCKS_MAX
from mileage.policy.load import ReplicaLoad
from mileage.policy.prefix_choice import HOT_FACTOR, PrefixChoice

__all__ = ["Candidates", "Router", "RoutingConfig", "RoutingPolicyName", "name_hash"]

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
L = TypeVar("L", bound=ReplicaLoad)
RoutingPolicyName: TypeAlias = Literal["affinity", "prefix", "round_robin"]


class RoutingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[routing]`."""

    policy: RoutingPolicyName = "affinity"
    """affinity: prompts that begin alike go to one replica, as long as it is not behind; prefix: to
    the replica where the request costs least, after what of its prompt each one has cached;
    round_robin: to each in turn, the baseline."""
    affinity: bool = True
    """Prefer the replica that is likely to hold the prompt's prefix in its cache. (policy =
    "affinity")"""
    affinity_slack_s: float = 0.5
    """The preferred replica yields when its predicted wait is longer than the other's by this."""
    view_max_age_s: float = 10.0
    """Older observations are not used."""
    attempts_max: int = 3
    """Attempts of one request, the first one included; with 1 nothing fails over."""
    balance_max_ratio: float = 1.25
    """No replica that is in use gets more of the last minute's work than this, over the mean of
    all. (policy = "prefix")"""
    prefix_blocks_max: int = BLOCKS_MAX
    """Blocks of prompts that are remembered of each replica, about 100 bytes each; the oldest are
    forgotten. (policy = "prefix")"""
    prefix_block_bytes: int = 1024
    """Text of one block; the first 256 of a prompt are looked at. (policy = "prefix")"""

    def __post_init__(self) -> None:
        require_range("routing.balance_max_ratio", self.balance_max_ratio, 1.01, 100.0)
        require_range("routing.prefix_blocks_max", self.prefix_blocks_max, 16, 1_000_000)
        require_range("routing.prefix_block_bytes", self.prefix_block_bytes, 64, 65_536)
        require_range("routing.attempts_max", self.attempts_max, 1, 10)
        require_at_least("routing.affinity_slack_s", self.affinity_slack_s, 0)
        require_positive("routing.view_max_age_s", self.view_max_age_s)


def name_hash(name: str) -> int:
    """A 64-bit hash of a replica's name: the same in every process, whatever PYTHONHASHSEED."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, usedforsecurity=False).digest()
    return int.from_bytes(digest, "little")


def _mix(value: int) -> int:
    """The 64-bit finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit in, every bit out."""
    value &= _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


class Candidates(Generic[L]):
    """The replicas that a request may be sent to, and which of them a prefix prefers.

    Prefixes fall into 4,096 buckets, and a bucket belongs to the replica with the highest hash of
    both (rendezvous hashing): when a replica goes, only its own buckets move, evenly to the others;
    when it is back, exactly those return. The owner is worked out at a bucket's first use, so that
    neither a change of the set nor a request costs time in proportion to the number of replicas.
    """

    __slots__ = ("_owners", "loads")

    def __init__(self, loads: Sequence[L]) -> None:
        self.loads: tuple[L, ...] = tuple(loads)
        self._owners: dict[int, L] = {}

    def preferred(self, prefix_key: int) -> L:
        """The replica that this prefix belongs to; there must be one candidate at least."""
        bucket = ((prefix_key * _GOLDEN) & _MASK) >> 52
        owner = self._owners.get(bucket)
        if owner is None:
            point = _mix(bucket + 1)
            owner = max(self.loads, key=lambda load: _mix(point ^ load.name_hash))
            self._owners[bucket] = owner
        return owner


class Router:
    """Power of two choices on predicted time, with prefix affinity that yields under load.

    Two candidates are drawn, and the one that would be done sooner gets the request: with the load
    of a moment ago in hand, taking the best of all makes every gateway run to the same replica.
    """

    __slots__ = ("_affinity", "_prefix", "_random", "_slack_s", "_turn")

    def __init__(self, config: RoutingConfig, random: Random) -> None:
        self._random = random
        self._turn: int | None = None
        self.reconfigure(config)

    def reconfigure(self, config: RoutingConfig) -> None:
        """Route by this from now on."""
        self._affinity = config.affinity
        self._slack_s = config.affinity_slack_s
        self._turn = (self._turn or 0) if config.policy == "round_robin" else None
        self._prefix = None
        if config.policy == "prefix":
            self._prefix = PrefixChoice(config.balance_max_ratio)

    def choose(
        self,
        candidates: Candidates[L],
        work_tokens: float,
        prefix_key: int | None,
        now_s: float,
        prefix_blocks: Sequence[int] = (),
        block_tokens: int = 0,
    ) -> L:
        """The replica for a request of `work_tokens`; there must be one candidate at least.

        `prefix_blocks` are the blocks of its prompt, of `block_tokens` each (see Request).
        """
        loads = candidates.loads
        count = len(loads)
        if count == 1:
            return loads[0]
        if self._prefix is not None and prefix_blocks:
            other = self._of_two(loads, count, work_tokens, now_s)
            return self._prefix.choose(
                loads, other, work_tokens, prefix_blocks, block_tokens, now_s
            )
        if self._turn is not None:
            self._turn += 1
            return loads[self._turn % count]
        preferred = None
        wait_s = 0.0
        if prefix_key is not None and self._affinity:
            preferred = candidates.preferred(prefix_key)
            wait_s = preferred.wait_s(now_s)
            # Nobody waits less than not at all: the common case needs no look at the others.
            if wait_s <= self._slack_s and not preferred.hot:
                return preferred
        chosen = self._of_two(loads, count, work_tokens, now_s)
        if preferred is None or chosen is preferred:
            return chosen
        if preferred.hot and not chosen.hot:
            return chosen
        return preferred if wait_s <= chosen.wait_s(now_s) + self._slack_s else chosen

    def _of_two(self, loads: tuple[L, ...], count: int, work_tokens: float, now_s: float) -> L:
        """The better of two different replicas drawn at random."""
        draw = self._random.random
        first = int(draw() * count)
        second = int(draw() * (count - 1))
        if second >= first:
            second += 1
        one, other = loads[first], loads[second]
        one_s, other_s = one.done_s(work_tokens, now_s), other.done_s(work_tokens, now_s)
        if one.hot is not other.hot:
            if one.hot:
                one_s *= HOT_FACTOR
            else:
                other_s *= HOT_FACTOR
        return one if one_s <= other_s else other
