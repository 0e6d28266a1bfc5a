"""TraceWriter: what a format of traces must be able to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["TraceWriter", "Value"]

Value = str | int | float | bool


class TraceWriter(Protocol):
    """Writes as it is told, in any order of time. Times are nanoseconds since 1970.

    Processes, tracks and counters are told once and are numbers from then on. On a track, slices
    do not overlap unless one is within the other.
    """

    def process(self, name: str) -> int:
        """A group of tracks."""
        ...

    def track(self, process: int, name: str) -> int:
        """A row of slices."""
        ...

    def counter(self, process: int, name: str, unit: str) -> int:
        """A curve."""
        ...

    def begin(
        self,
        track: int,
        name: str,
        at_ns: int,
        args: Mapping[str, Value],
        *,
        flow_from: int | None = None,
        flow_to: int | None = None,
    ) -> None:
        """A slice begins."""
        ...

    def end(self, track: int, at_ns: int) -> None:
        """The slice that began last and has not ended, ends."""
        ...

    def count(self, counter: int, at_ns: int, value: float) -> None:
        """The curve has this value from then on."""
        ...

    def finish(self) -> None:
        """Nothing follows."""
        ...
