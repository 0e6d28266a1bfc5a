"""What the parts of the governor's benchmark share: their surroundings, their results, one arm."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.governed import GovernedStack
from benchmarks.support.output import Output
from benchmarks.support.verdict import Bar
from benchmarks.support.watch import GATEWAY_CORE

__all__ = ["LAG_MAX_S", "Part", "Surroundings"]

LAG_MAX_S = 0.010
"""A load client that is later than this in one of a hundred requests was not quick enough."""


@dataclass(slots=True)
class Surroundings:
    """Where a part runs. `journals` collects what its gateways wrote, for the replay."""

    directory: Path
    output: Output
    quick: bool
    journals: list[Path] = field(default_factory=list)
    _directories: int = 0

    def new_directory(self, name: str) -> Path:
        """A directory for one arm."""
        self._directories += 1
        directory = self.directory / f"{self._directories:03d}-{name.replace(' ', '-')}"
        directory.mkdir(parents=True)
        return directory

    def gateway(self, directory: Path, **options: Any) -> GovernedStack:
        """A gateway on its core; its journal is replayed at the end."""
        stack = GovernedStack(directory, core=GATEWAY_CORE, **options)
        self.journals.append(stack.journal)
        return stack


@dataclass(slots=True)
class Part:
    """Figures of one part, and what is to be held against them."""

    figures: dict[str, object] = field(default_factory=dict)
    bars: tuple[Bar, ...] = ()
    failures: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def note_lag(self, name: str, lag_s: float, most_s: float = LAG_MAX_S) -> None:
        """The load client of an arm was this late."""
        if lag_s > most_s:
            self.doubts.append(f"{name}: the load client was {lag_s * 1e3:.0f} ms late")
