"""ReplicaClock: turns looks at replicas into stretches of time that never overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mileage.ledger.replica_time import ReplicaState, ReplicaTime

__all__ = ["ReplicaClock", "ReplicaSeen"]

_STEP_NS: Final = 250_000_000
"""Wall clock and monotonic clock come apart by less than this between two looks, unless somebody
set the wall clock: the kernel slews it by at most 500 ppm."""


class ReplicaSeen(NamedTuple):
    """One replica at one look."""

    state: ReplicaState
    gpus: float = 1.0
    gpu: str = ""


class ReplicaClock:
    """Between two looks a replica is what it was at the first of them; so look when one changes.

    How long that was the monotonic clock says, and where on the time line the wall clock, which
    may be set. Set forward, a stretch ends at the new time, and what was skipped is in none. Set
    back, the time that comes again was told already: nothing is told until it is over, so what
    passes meanwhile is missing, and never twice there.
    """

    def __init__(self) -> None:
        self._now_ns = 0
        self._until_utc_ns = 0
        self._seen: dict[str, ReplicaSeen] | None = None

    def look(self, now_ns: int, utc_ns: int, seen: Mapping[str, ReplicaSeen]) -> list[ReplicaTime]:
        """The stretches since the last look, by replica; `now_ns` is monotonic. Never empty ones,
        nor any that overlap one told before."""
        before, self._seen = self._seen, dict(seen)
        if before is None:
            self._now_ns, self._until_utc_ns = now_ns, utc_ns
            return []
        passed_ns, self._now_ns = now_ns - self._now_ns, now_ns
        from_ns, until_ns = self._until_utc_ns, utc_ns
        if utc_ns - from_ns - passed_ns > _STEP_NS:
            from_ns = utc_ns - passed_ns
        if until_ns <= from_ns:
            return []
        self._until_utc_ns = until_ns
        return [
            ReplicaTime(name, from_ns, until_ns, replica.gpus, replica.gpu, replica.state)
            for name, replica in before.items()
        ]
