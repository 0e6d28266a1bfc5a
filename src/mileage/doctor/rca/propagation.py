"""Propagation: which node's trouble came first and explains that of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from mileage.doctor.rca.topology import GATEWAY, Topology
from mileage.doctor.rca.trouble import Trouble

__all__ = ["Effect", "Root", "ranked"]

_EXPLAINS, _FIRST, _UNEXPLAINED, _STRENGTH = 0.45, 0.25, 0.20, 0.10
"""Parts of the score. They sum to 1: of a node that explains all others, was first, is explained by
none, and is far from usual."""
_FIRST_STEPS: Final = 10
_SLACK: Final = 3
"""Steps that an effect may begin after its cause is over: a queue has to drain."""
_BESIDE_STEPS: Final = 2
_COMMON_RATIO: Final = 0.7
_ACCOUNT_RATIO: Final = 0.5
_TIE: Final = 0.05
_STRONG: Final = 10.0


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A node whose trouble another explains."""

    node: str
    relation: str
    lead_steps: int
    """From the cause's beginning to its own; 0: within one point of the grid."""


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A node that may be the cause. `score` is the sum of `parts`, at most 1."""

    node: str
    start: int
    end: int
    score: float
    parts: tuple[tuple[str, float], ...]
    effects: tuple[Effect, ...]
    explained_by: tuple[str, ...]
    simultaneous: tuple[str, ...]
    """Nodes whose trouble began within the same point, and whose order the grid cannot tell."""
    common: tuple[str, ...]
    """Nodes that began together, and of which this is what they have in common."""
    from_load: bool
    tied_with: tuple[str, ...] = ()
    """Candidates whose score is within 0.05 of this one's: the record cannot tell them apart."""


def ranked(found: Mapping[str, Trouble], topology: Topology) -> list[Root]:
    """The candidates, the likeliest first; none where there is no trouble.

    A node explains another where what it has can travel there (load down to who serves, slowness
    up to who asks, overflow to who serves beside it), it began no later, by a point that noise may
    move, and it lasted until then. Between nodes beside each other order is all there is: it must
    have been at least two points earlier. Replicas that got worse within one point of each other,
    without more load, have a cause in common: the gateway where they are most of all, a host where
    they are those on it.
    """
    if not found:
        return []
    groups = _groups(found, topology)
    candidates = dict(found)
    for node, members in groups.items():
        if node not in candidates:
            first = min((found[name] for name in members), key=lambda each: each.start)
            candidates[node] = Trouble(node=node, anomalies=first.anomalies)
    grouped = {name for members in groups.values() for name in members}
    explained: dict[str, list[Effect]] = {}
    for cause in candidates.values():
        members = groups.get(cause.node, ())
        explained[cause.node] = [
            effect
            for other in found.values()
            if (effect := _effect(cause, other, found, topology, members, grouped)) is not None
        ]
    roots = [_root(each, candidates, found, explained, groups) for each in candidates.values()]
    roots.sort(key=lambda root: (-root.score, root.start, root.node))
    return [_tied(root, roots) for root in roots]


def _root(
    cause: Trouble,
    candidates: Mapping[str, Trouble],
    found: Mapping[str, Trouble],
    explained: Mapping[str, list[Effect]],
    groups: Mapping[str, tuple[str, ...]],
) -> Root:
    node = cause.node
    effects = explained[node]
    others = sum(each.weight for name, each in found.items() if name != node)
    share = sum(found[each.node].weight for each in effects) / others if others else 1.0
    earliest = min(each.start for each in found.values())
    late = (cause.start - earliest) / _FIRST_STEPS
    causes = sorted(
        name
        for name in candidates
        if name != node and any(effect.node == node for effect in explained[name])
    )
    parts = (
        ("explains", _EXPLAINS * share),
        ("first", _FIRST * max(0.0, 1.0 - late)),
        ("unexplained", 0.0 if causes else _UNEXPLAINED),
        ("strength", _STRENGTH * min(1.0, cause.weight / _STRONG)),
    )
    reached = {each.node for each in effects} | set(causes)
    return Root(
        node=node,
        start=cause.start,
        end=cause.end,
        score=sum(value for _, value in parts),
        parts=parts,
        effects=tuple(sorted(effects, key=lambda each: (each.lead_steps, each.node))),
        explained_by=tuple(causes),
        simultaneous=tuple(
            sorted(
                name
                for name, each in found.items()
                if name != node and name not in reached and abs(each.start - cause.start) <= 1
            )
        ),
        common=groups.get(node, ()),
        from_load=cause.from_load,
    )


def _tied(root: Root, roots: list[Root]) -> Root:
    near = [
        other.node
        for other in roots
        if other.node != root.node and abs(other.score - root.score) <= _TIE
    ]
    return msgspec.structs.replace(root, tied_with=tuple(near))


def _effect(
    cause: Trouble,
    other: Trouble,
    found: Mapping[str, Trouble],
    topology: Topology,
    members: tuple[str, ...],
    grouped: set[str],
) -> Effect | None:
    """The effect of a cause on another node; None where it does not explain that."""
    if cause.node == other.node:
        return None
    if other.node in members:
        lead = max(0, other.start - cause.start)
        return Effect(node=other.node, relation="common", lead_steps=lead)
    relation = topology.relation(cause.node, other.node)
    if relation is None or other.start > cause.end + _SLACK:
        return None
    start = _begins(relation, cause, other, found, grouped)
    if start is None:
        return None
    lead = other.start - start
    if lead < (_BESIDE_STEPS if relation == "beside" else -1):
        return None
    return Effect(node=other.node, relation=relation, lead_steps=max(0, lead))


def _begins(
    relation: str,
    cause: Trouble,
    other: Trouble,
    found: Mapping[str, Trouble],
    grouped: set[str],
) -> int | None:
    """When the part of the cause began that can travel this way; None: it has no such part."""
    if relation in ("feeds", "rivals"):
        load = cause.load
        if load is None or not cause.from_load:
            return None
        rising = other.load is not None and other.from_load
        if relation == "rivals":
            return None if rising else load.start
        return load.start if _accounts(cause, other) else None
    if relation == "serves":
        if cause.node == GATEWAY and other.from_load:
            return cause.start if _all_rise(found, other) else None
        # What asks for more is not explained by who serves it.
        if other.from_load and other.node != GATEWAY:
            return None
        if cause.node in grouped or (cause.from_load and other.from_load):
            return None
        own = cause.own
        return None if own is None else own.start
    # Beside: one that got more itself is as much an effect as the other.
    return None if cause.from_load or cause.node in grouped else cause.start


def _accounts(cause: Trouble, other: Trouble) -> bool:
    """Whether what came in more at the cause is most of what came in more at the other."""
    mine, its = cause.load, other.load
    if mine is None or its is None:
        return True
    alike = {each.name: each for each in other.anomalies if each.kind == "load"}
    for each in cause.anomalies:
        beside = alike.get(each.name)
        if each.kind == "load" and beside is not None:
            extra = beside.actual - beside.expected
            return extra <= 0 or each.actual - each.expected >= _ACCOUNT_RATIO * extra
    return True


def _all_rise(found: Mapping[str, Trouble], tenant: Trouble) -> bool:
    """Several tenants ask for more, and none of them for most of it."""
    gateway = found.get(GATEWAY)
    if gateway is None or not gateway.from_load:
        return False
    kind = tenant.node.split(":")[0]
    rising = [each for each in found.values() if each.node.split(":")[0] == kind and each.from_load]
    return len(rising) >= 2 and not any(_accounts(each, gateway) for each in rising)


def _groups(found: Mapping[str, Trouble], topology: Topology) -> dict[str, tuple[str, ...]]:
    """What has several replicas in common that got worse within one point without more load."""
    replicas = topology.kind("replica")
    worse = [
        found[name]
        for name in replicas
        if name in found and not found[name].from_load and found[name].own is not None
    ]
    if len(worse) < 2:
        return {}
    first = min(each.start for each in worse)
    together = tuple(sorted(each.node for each in worse if each.start - first <= 1))
    if len(together) < 2:
        return {}
    for node in [*topology.kind("gpu"), *topology.kind("host")]:
        on_it = tuple(name for name in replicas if topology.distance(name, node) is not None)
        if 2 <= len(on_it) < len(replicas) and set(together) == set(on_it):
            return {node: together}
    if len(together) >= max(2, _COMMON_RATIO * len(replicas)):
        return {GATEWAY: together}
    return {}
