"""Trouble: what went wrong at one node, and when: load, what its users feel, what lies below."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from mileage.doctor.rca.anomalies import Anomaly

__all__ = ["Trouble", "is_bad", "troubles"]

_WORSE_UP: Final = ("load", "latency", "errors", "queue", "memory", "host")
_FELT: Final = ("latency", "errors", "queue", "throughput")
_WEIGHT_MAX: Final = 20.0


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """The anomalies of a node that make matters worse, the earliest first; never none of them."""

    node: str
    anomalies: tuple[Anomaly, ...]

    @property
    def start(self) -> int:
        """Point at which the first began."""
        return self.anomalies[0].start

    @property
    def end(self) -> int:
        """Point at which the last was over."""
        return max(each.end for each in self.anomalies)

    @property
    def weight(self) -> float:
        """How strong it is: the highest score, as far as it matters."""
        return min(_WEIGHT_MAX, max(each.score for each in self.anomalies))

    @property
    def load(self) -> Anomaly | None:
        """The first that says that more came in."""
        return next((each for each in self.anomalies if each.kind == "load"), None)

    @property
    def felt(self) -> Anomaly | None:
        """The first that its users feel."""
        return next((each for each in self.anomalies if each.kind in _FELT), None)

    @property
    def own(self) -> Anomaly | None:
        """The first that is no load."""
        return next((each for each in self.anomalies if each.kind != "load"), None)

    @property
    def from_load(self) -> bool:
        """More came in before it got worse, or within a point of that."""
        load, own = self.load, self.own
        return load is not None and (own is None or load.start <= own.start + 1)


def is_bad(anomaly: Anomaly) -> bool:
    """Whether it makes matters worse: higher latency, less throughput, more load. What devices do
    is either."""
    if anomaly.kind in _WORSE_UP:
        return anomaly.direction == "up"
    if anomaly.kind == "throughput":
        return anomaly.direction == "down"
    return anomaly.kind == "device"


def troubles(found: Iterable[Anomaly]) -> dict[str, Trouble]:
    """The troubles by node. Less throughput where less came in is none."""
    by_node: dict[str, list[Anomaly]] = {}
    for each in found:
        by_node.setdefault(each.node, []).append(each)
    bad: dict[str, Trouble] = {}
    for node, of_node in by_node.items():
        fewer = [a for a in of_node if a.kind == "load" and a.direction == "down"]
        kept = [a for a in of_node if is_bad(a) and not _follows(a, fewer)]
        if kept:
            ordered = sorted(kept, key=lambda a: (a.start, -a.score, a.name))
            bad[node] = Trouble(node=node, anomalies=tuple(ordered))
    return bad


def _follows(anomaly: Anomaly, fewer: list[Anomaly]) -> bool:
    return anomaly.kind == "throughput" and any(
        less.start <= anomaly.start + 1 and anomaly.start < less.end for less in fewer
    )
