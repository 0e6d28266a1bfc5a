"""The least recently used adapter makes room."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["LruResidency"]


class LruResidency:
    """What engines do: vLLM's adapter caches, on the GPU and in the host's memory, are LRU."""

    __slots__ = ("_order", "_uses")

    def __init__(self) -> None:
        self._order: dict[str, int] = {}
        self._uses = 0

    def use(self, adapter: str, now_s: float) -> None:
        """It is the most recently used one from now on."""
        self._uses += 1
        self._order[adapter] = self._uses

    def leaves(self, adapters: Iterable[str], now_s: float) -> str:
        """The one whose last use is the longest ago."""
        order = self._order
        return min(adapters, key=lambda adapter: order.get(adapter, 0))
