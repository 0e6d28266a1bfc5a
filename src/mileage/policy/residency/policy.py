"""ResidencyPolicy: which adapter makes room for another in a memory with few places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["ResidencyPolicy"]


class ResidencyPolicy(Protocol):
    """Ranks adapters. It is told what is used, and neither stores them nor knows which may go.

    An adapter is named as requests name it. `now_s` never decreases.
    """

    def use(self, adapter: str, now_s: float) -> None:
        """A request with that adapter begins to run."""
        ...

    def leaves(self, adapters: Iterable[str], now_s: float) -> str:
        """Which of these adapters, at least one, makes room."""
        ...
