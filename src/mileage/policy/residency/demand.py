"""AdapterDemand: how much each LoRA adapter is wanted, and who waits for one."""

from __future__ import annotations

from collections.abc import Mapping

from mileage.policy.residency.heat import HeatConfig, HeatResidency

__all__ = ["AdapterDemand"]


class AdapterDemand:
    """`heat`: uses, each faded by its age; `waiting`: requests that wait now, by adapter."""

    __slots__ = ("_half_life_s", "_until_s", "_waited_s", "heat", "waiting")

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self.heat = HeatResidency(HeatConfig(half_life_s=half_life_s))
        self.waiting: dict[str, int] = {}
        self._waited_s: dict[str, float] = {}
        self._until_s: float | None = None

    def configure(self, half_life_s: float) -> None:
        """Uses fade so fast from now on; where that is another speed, none is known any more."""
        if half_life_s != self._half_life_s:
            self._half_life_s = half_life_s
            self.heat = HeatResidency(HeatConfig(half_life_s=half_life_s))

    def told(self, used: Mapping[str, int], waiting: Mapping[str, int], now_s: float) -> None:
        """So many requests came since the last call; and so many wait now, in all."""
        self.count(now_s)
        for name, times in used.items():
            for _ in range(times):
                self.heat.use(name, now_s)
        self.waiting = {name: count for name, count in waiting.items() if count}
        self._waited_s = {name: self._waited_s.get(name, 0.0) for name in self.waiting}

    def count(self, now_s: float) -> None:
        """Those that wait have waited until now."""
        since_s = now_s if self._until_s is None else self._until_s
        self._until_s = now_s
        for name, waiting in self.waiting.items():
            self._waited_s[name] += waiting * (now_s - since_s)

    def waited_s(self, name: str) -> float:
        """What those that wait for it have waited, together."""
        return self._waited_s[name]

    def longest_first(self) -> list[str]:
        """What is waited for, by how long that is in all."""
        return sorted(self.waiting, key=lambda name: -self._waited_s[name])
