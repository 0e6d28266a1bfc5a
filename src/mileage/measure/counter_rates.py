"""CounterRates: rates out of totals that may begin anew."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

__all__ = ["CounterRates"]

_KEYS_MAX: Final = 65_536


class CounterRates:
    """Remembers each counter's last total. A total that went back (driver reload, wrap-around,
    another process) has no rate until it was seen twice more: how far it got before is not known.

    At most 65,536 counters are remembered; past that all are forgotten and begin again.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}

    def rate(self, key: Hashable, total: float | None, at_s: float) -> float | None:
        """Units per second since the look before; None the first time, where the total is None or
        went back, and where no time has passed."""
        last = self._last.pop(key, None)
        if total is None or not math.isfinite(total):
            return None
        if len(self._last) >= _KEYS_MAX:
            self._last.clear()
        self._last[key] = total, at_s
        if last is None or at_s <= last[1] or total < last[0]:
            return None
        return (total - last[0]) / (at_s - last[1])
