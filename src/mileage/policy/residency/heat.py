"""The adapter that is wanted least often makes room, by how often it was wanted lately."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from mileage.core.bounds import require_positive

__all__ = ["HeatConfig", "HeatResidency"]

_KNOWN_MAX = 100_000
_LN_2 = math.log(2.0)


class HeatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the policy `heat`. Raises ConfigError for what cannot be."""

    half_life_s: float = 600.0
    """A use counts half after this time: shorter follows a change of what is popular sooner, longer
    tells popular from less popular more surely."""

    def __post_init__(self) -> None:
        require_positive("heat.half_life_s", self.half_life_s)


class HeatResidency:
    """Uses of each adapter, each counting half after a half-life; also of those that are not
    resident, so that one that is wanted often comes back warm.

    With independent requests of constant popularity, keeping the most popular ones is the best that
    can be done without knowing the future (Aho, Denning, Ullman, "Principles of Optimal Page
    Replacement", 1971); LRU gives places to whatever was wanted last. Among those never seen twice
    the least recently used one goes.
    """

    __slots__ = ("_half_life_s", "_heat")

    def __init__(self, config: HeatConfig) -> None:
        self._half_life_s = config.half_life_s
        self._heat: dict[str, tuple[float, float]] = {}
        """Heat and the time of the last use, the least recently used first."""

    def use(self, adapter: str, now_s: float) -> None:
        """One use more; what was known fades since its last one."""
        before = self._heat.pop(adapter, None)
        heat = 1.0 if before is None else 1.0 + self._faded(before, now_s)
        self._heat[adapter] = (heat, now_s)
        if len(self._heat) > _KNOWN_MAX:
            del self._heat[next(iter(self._heat))]

    def heat(self, adapter: str, now_s: float) -> float:
        """Uses, each faded by its age; what is used steadily R times a second has R * half-life /
        ln 2."""
        found = self._heat.get(adapter)
        return 0.0 if found is None else self._faded(found, now_s)

    def last_use_s(self, adapter: str) -> float | None:
        """When it was used last; None where that is not known."""
        found = self._heat.get(adapter)
        return None if found is None else found[1]

    def leaves(self, adapters: Iterable[str], now_s: float) -> str:
        """The coldest one; of equally cold ones the least recently used."""
        known, never = self._heat, (0.0, 0.0)

        def warmth(adapter: str) -> tuple[float, float]:
            found = known.get(adapter, never)
            return self._faded(found, now_s), found[1]

        return min(adapters, key=warmth)

    def _faded(self, heat: tuple[float, float], now_s: float) -> float:
        value, at_s = heat
        return value * math.exp(-_LN_2 * max(0.0, now_s - at_s) / self._half_life_s)
