"""AdapterPlaces: what one replica holds of LoRA adapters, and what a load took it."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["AdapterPlaces"]

_GAIN = 0.3


class AdapterPlaces:
    """`slots` adapters fit; a change is under way while `busy`."""

    __slots__ = (
        "base_models",
        "busy",
        "coming",
        "load_s",
        "measured_loads",
        "name",
        "outdated",
        "resident",
        "slots",
        "stale",
        "stale_retry_s",
        "up",
    )

    def __init__(self, name: str, slots: int, load_s: float) -> None:
        self.name, self.slots = name, slots
        self.base_models: frozenset[str] = frozenset()
        self.resident: dict[str, float] = {}
        """Adapter -> since when, monotonic."""
        self.stale: set[str] = set()
        """Held, but not what is configured under this name any more: to be unloaded."""
        self.coming: set[str] = set()
        """Being loaded."""
        self.outdated: set[str] = set()
        """Those of them that are others by configuration since their load began: never used."""
        self.stale_retry_s = -math.inf
        """Not tried before this, where it could not be unloaded."""
        self.busy = False
        self.up = False
        self.load_s = load_s
        """What a load takes: assumed at first, then as measured (EWMA)."""
        self.measured_loads = 0

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return self.slots - len(self.resident) - len(self.stale)

    def holds(self, adapter: str) -> bool:
        """One of this name is there, be it the one that is configured now or not."""
        return adapter in self.resident or adapter in self.stale

    def measured(self, took_s: float) -> None:
        """A load took this long."""
        gain = _GAIN if self.measured_loads else 1.0
        self.measured_loads += 1
        self.load_s += gain * (took_s - self.load_s)

    def outdate(self, adapter: str) -> None:
        """It is another one by configuration now, or none: what is held is not to be used."""
        if self.resident.pop(adapter, None) is not None:
            self.stale.add(adapter)
        if adapter in self.coming:
            self.outdated.add(adapter)

    def came_up(
        self,
        base_models: Iterable[str],
        adapters: Iterable[str],
        slots: int,
        now_s: float,
        *,
        others: Iterable[str] = (),
    ) -> None:
        """It serves these, and was found to hold these adapters; the `others` among them are not
        what is configured under their names. Of what was loaded from here, and not lost from sight
        since, that is not believed: an engine may write a path otherwise."""
        ours = self.resident.keys() if self.up else frozenset[str]()
        self.up, self.slots = True, slots
        self.base_models = frozenset(base_models)
        if not self.busy:  # else what it held before the change is still being told
            held = frozenset(adapters)
            self.stale &= held
            self.stale |= (held & frozenset(others)) - ours
            since_s = self.resident
            self.resident = {n: since_s.get(n, now_s) for n in held - self.stale}
