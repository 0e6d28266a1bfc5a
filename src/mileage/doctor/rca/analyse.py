"""Analysis of a history: what was unusual, what came first, what it goes with, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from mileage.doctor.rca.action import Action, suggested
from mileage.doctor.rca.anomalies import Anomaly, Scored, anomalies_of, scored
from mileage.doctor.rca.capacity import Capacity, capacity_of
from mileage.doctor.rca.decay import Relation, relations
from mileage.doctor.rca.decompose import DAY_S
from mileage.doctor.rca.events import Precedent, precedents
from mileage.doctor.rca.joint import forest_installed, joint_anomalies
from mileage.doctor.rca.propagation import Root, ranked
from mileage.doctor.rca.series import POINTS_MIN, History
from mileage.doctor.rca.topology import Topology, topology_of
from mileage.doctor.rca.trouble import troubles

__all__ = ["Analysis", "analyse"]

Verdict = Literal["clear", "finding", "not_enough_evidence"]
_BEFORE_STEPS: Final = 5
_BEFORE_S: Final = 900.0


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """What a history says. `roots[0]` is the likeliest cause, `actions` and `before` are its."""

    verdict: Verdict
    missing: tuple[str, ...]
    """What it would take to say more; never empty where evidence is not enough."""
    anomalies: tuple[Anomaly, ...]
    roots: tuple[Root, ...]
    before: tuple[Precedent, ...]
    actions: tuple[Action, ...]
    relations: tuple[Relation, ...]
    capacity: Capacity | None
    edges: tuple[tuple[str, str], ...]
    methods: tuple[str, ...]
    series_looked_at: int
    series_too_short: int
    notes: tuple[str, ...]


def analyse(history: History, *, seed: int = 0, libraries: bool = True) -> Analysis:
    """Analyse a history. Equal histories and seeds give equal answers.

    `libraries`: use statsmodels and scikit-learn where they are installed.
    """
    topology = topology_of(history)
    looked = [scored(each, history, stl=libraries) for each in history.series]
    seen = [each for each in looked if each is not None]
    found = [anomaly for each in seen for anomaly in anomalies_of(each, history.first)]
    if libraries:
        found += _joint(seen, found, history.first, seed)
    found.sort(key=lambda each: (each.start, each.node, each.name, each.joint))
    # A joint anomaly has no direction that is worse: it is told, and blames nobody.
    bad = troubles(each for each in found if not each.joint)
    roots = ranked(bad, topology)
    worn = relations(history, topology.edges)
    capacity = capacity_of(seen, found, history.first)
    before: list[Precedent] = []
    actions: list[Action] = []
    if roots:
        before = _before(history, roots[0], topology)
        trouble = bad.get(roots[0].node) or bad[roots[0].common[0]]
        actions = suggested(roots[0], trouble, before, capacity, worn, topology)
    related = any(each.found == "related" for each in worn)
    if not roots:
        actions = _without_root(history, worn, capacity)
    missing = _missing(history, seen)
    verdict: Verdict = "finding" if found or related else "clear"
    if not seen:
        verdict = "not_enough_evidence"
    return Analysis(
        verdict=verdict,
        missing=tuple(missing),
        anomalies=tuple(found),
        roots=tuple(roots),
        before=tuple(before),
        actions=tuple(actions),
        relations=tuple(worn),
        capacity=capacity,
        edges=tuple(topology.edges),
        methods=_methods(seen, libraries),
        series_looked_at=len(seen),
        series_too_short=len(looked) - len(seen),
        notes=history.notes,
    )


def _joint(
    seen: Sequence[Scored], found: Sequence[Anomaly], first: int, seed: int
) -> list[Anomaly]:
    """Joint anomalies of each node, where no single series of it tells the same."""
    by_node: dict[str, list[Scored]] = {}
    for each in seen:
        by_node.setdefault(each.series.node, []).append(each)
    return [
        anomaly
        for node, of_node in sorted(by_node.items())
        for anomaly in joint_anomalies(of_node, first, seed=seed)
        if not any(
            other.node == node and other.start < anomaly.end and anomaly.start < other.end
            for other in found
        )
    ]


def _before(history: History, root: Root, topology: Topology) -> list[Precedent]:
    """Events before the root's trouble, of nodes from which it could come: itself, who asks it and
    whom it asks."""
    span_s = history.points * history.step_s
    found = precedents(
        history.events,
        history.at_utc_s(root.start),
        span_s=span_s,
        step_s=history.step_s,
        before_s=max(_BEFORE_S, _BEFORE_STEPS * history.step_s),
    )
    return [
        each
        for each in found
        if each.event.node == root.node or topology.relation(each.event.node, root.node) is not None
    ]


def _without_root(
    history: History, worn: Sequence[Relation], capacity: Capacity | None
) -> list[Action]:
    related = next((each for each in worn if each.found == "related"), None)
    if related is not None:
        text = f"Restart {related.node.replace(':', ' ', 1)} when it suits"
        why = f"its throughput falls as {related.driver} grows"
        return [Action(kind="restart", node=related.node, text=text, why=why)]
    searched_s = (history.points - history.first) * history.step_s
    if capacity is None or capacity.needed >= capacity.replicas or searched_s < DAY_S:
        return []
    fewer = capacity.replicas - capacity.needed
    text = f"{fewer} replica{'s' if fewer > 1 else ''} could go, while the load stays as it is"
    why = (
        f"in a day {capacity.load:.4g} {capacity.signal} came at most, and one has served "
        f"{capacity.per_replica:.4g} in time before"
    )
    return [Action(kind="remove_replicas", replicas=fewer, text=text, why=why)]


def _missing(history: History, seen: Sequence[Scored]) -> list[str]:
    if not history.series:
        return ["any record of requests in this time"]
    missing = []
    if len(seen) < len(history.series):
        short = len(history.series) - len(seen)
        missing.append(
            f"{POINTS_MIN} points of {history.step_s:g} s to tell what is usual, "
            f"for {short} of {len(history.series)} series"
        )
    if seen and all(each.method == "level" for each in seen):
        missing.append("two days before the time that is searched, to know the course of a day")
    names = {each.name for each in history.series}
    if not any("fragmentation" in n or "switches" in n or n == "rss_bytes" for n in names):
        missing.append(
            "fragmentation, context switches and resident memory over time (--series), to tell "
            "what wears throughput down"
        )
    return missing


def _methods(seen: Sequence[Scored], libraries: bool) -> tuple[str, ...]:
    names = {
        "stl": "seasonal-trend decomposition by loess (statsmodels)",
        "medians": "medians by time of day",
        "level": "median of the time before",
    }
    used = [names[method] for method in names if any(each.method == method for each in seen)]
    if libraries and forest_installed():
        used.append("isolation forest (scikit-learn)")
    return tuple(used)
