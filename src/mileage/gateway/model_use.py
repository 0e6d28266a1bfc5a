"""ModelUse: what the workers reported last of replicas that can sleep, and what waits for them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from mileage.gateway.messages import Report

__all__ = ["ModelUse"]


class _Seen(NamedTuple):
    """What one worker reported last of one replica."""

    in_flight: int
    sent_total: int
    reason: str | None


class ModelUse:
    """By worker; `live` are the processes of those that there are."""

    def __init__(self, live: Callable[[], Iterable[int]]) -> None:
        self._live = live
        self._seen: dict[int, dict[str, _Seen]] = {}
        self._waiting: dict[int, dict[str, int]] = {}

    def report(self, report: Report, names: Container[str]) -> list[str]:
        """A worker's report; gives those of `names` that were used since the one before."""
        before = self._seen.get(report.pid, {})
        self._waiting[report.pid] = report.waiting
        now = self._seen[report.pid] = {
            each.name: _Seen(each.in_flight, each.sent_total, each.reason)
            for each in report.replicas
            if each.name in names
        }
        used = []
        for name, seen in now.items():
            known = before.get(name)
            if seen.in_flight or seen.sent_total > (known.sent_total if known else 0):
                used.append(name)
        return used

    def gone(self, pid: int) -> None:
        """A worker has ended."""
        self._seen.pop(pid, None)
        self._waiting.pop(pid, None)

    def in_flight(self, replica: str) -> int:
        """Requests that it has."""
        return sum(seen[replica].in_flight for seen in self._seen.values() if replica in seen)

    def waiting(self, models: Iterable[str]) -> int:
        """Requests that no replica takes until one has loaded any of these."""
        return sum(waits.get(model, 0) for waits in self._waiting.values() for model in models)

    def waited_for(self) -> set[str]:
        """Models that requests wait for."""
        return {model for waits in self._waiting.values() for model, n in waits.items() if n}

    def has_left(self, replica: str, told: str) -> bool:
        """Every worker knows that it is down for this reason, and has nothing there."""
        for pid in self._live():
            seen = self._seen.get(pid, {}).get(replica)
            if seen is None or seen.reason != told or seen.in_flight:
                return False
        return True
