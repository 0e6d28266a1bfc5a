"""The mixture limit: the more kinds of media are mixed, the fewer requests at once."""

from __future__ import annotations

import math

import msgspec

from mileage.core.bounds import require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.policy.limits.bounds import UNBOUNDED, LimitBounds
from mileage.policy.limits.limit import LimitDecision, LimitSignals
from mileage.policy.limits.memory import KvMemory
from mileage.policy.limits.readings import count_of, fresh, positive

__all__ = ["MixtureConfig", "MixtureLimit", "mix_entropy"]


class MixtureConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[governor.mixture]`: used where `policy = "mixture"`."""

    pure_max: int = 10
    """The limit while all requests are of one kind: text, image or audio."""
    mixed_max: int = 2
    """The limit while all kinds are equally frequent; in between it follows the entropy."""
    kv_mark_ratio: float = 1.0
    """The part of the KV cache that may be filled."""
    period_s: float = 1.0
    """One change per period, so that its effect is seen before the next."""
    view_max_age_s: float = 10.0
    """Older observations are not used."""

    def __post_init__(self) -> None:
        key = "governor.mixture"
        require_range(f"{key}.pure_max", self.pure_max, 1, 100_000)
        if not 1 <= self.mixed_max <= self.pure_max:
            raise ConfigError(f"{key}.mixed_max", self.mixed_max, f"1..pure_max ({self.pure_max})")
        require_range(f"{key}.kv_mark_ratio", self.kv_mark_ratio, 0.1, 1.0)
        require_positive(f"{key}.period_s", self.period_s)
        require_positive(f"{key}.view_max_age_s", self.view_max_age_s)


class MixtureLimit:
    """`max(1, min(memory, 8 * (1 - entropy) + 2))`, with the entropy of the mix in 0..1.

    `memory` is the number of requests in flight plus those of mean load that fit into the free part
    of the KV cache. It needs a fresh view that has both figures; without one it bounds nothing, but
    where an engine has told its usage before, the limit does not rise. Without any requests the
    limit is held. It follows the mix, and so it also moves while the replica is under-used.
    """

    __slots__ = ("_bounds", "_config", "_due_s", "_limit", "_memory")

    def __init__(
        self, config: MixtureConfig, *, limit: int, bounds: LimitBounds = UNBOUNDED
    ) -> None:
        self._config, self._bounds = config, bounds
        self._limit = limit
        self._memory = KvMemory(config.kv_mark_ratio)
        self._due_s = -math.inf

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """The limit for the mix of now."""
        config = self._config
        self._limit = self._bounds.clamp(self._limit, signals)
        view = fresh(signals.view, now_s, config.view_max_age_s)
        self._memory.observe(view, signals.in_flight)
        if now_s < self._due_s:
            return LimitDecision(self._limit, f"held: {config.period_s:g} s between changes")
        entropy = mix_entropy(signals.modality_counts)
        if entropy is None:
            return LimitDecision(self._limit, f"no requests: held at {self._limit}")
        wanted = (config.pure_max - config.mixed_max) * (1.0 - entropy) + config.mixed_max
        reason = f"entropy of the mix {entropy:.2f}"
        fits = self._fits(signals)
        if fits is not None and fits < wanted:
            wanted = fits
            reason += f", {fits:.0f} fit into the KV cache"
        elif self._memory.lost and wanted > self._limit:
            wanted = self._limit
            reason += ", KV usage unknown"
        limit = self._bounds.clamp(wanted, signals)
        if limit != self._limit:
            self._limit = limit
            self._due_s = now_s + config.period_s
        return LimitDecision(limit, f"{reason}: {limit}")

    def _fits(self, signals: LimitSignals) -> float | None:
        """Requests in flight, and how many more of mean load fit; None where unknown."""
        usage, load = self._memory.usage_ratio, positive(signals.load_mean)
        if usage is None or load is None or signals.view is None:
            return None
        tokens_max = positive(signals.view.kv_tokens_max)
        if tokens_max is None:
            return None
        free_tokens = max(0.0, self._config.kv_mark_ratio - usage) * tokens_max
        return max(1.0, signals.in_flight + free_tokens / load)


def mix_entropy(counts: tuple[float, ...]) -> float | None:
    """Shannon entropy of the shares over that of equal shares: 0 one kind, 1 all alike.

    None without any requests.
    """
    some = [c for c in map(count_of, counts) if c > 0.0]
    total = sum(some)
    if not some:
        return None
    entropy = sum(c / total * math.log(total / c) for c in some)
    return min(1.0, entropy / math.log(len(counts)))
