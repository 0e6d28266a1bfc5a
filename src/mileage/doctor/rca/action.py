"""Action: what to do about a root cause, with the figure or the version that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import quote

import msgspec

from mileage.doctor.rca.capacity import Capacity
from mileage.doctor.rca.decay import Relation
from mileage.doctor.rca.events import Precedent
from mileage.doctor.rca.propagation import Root
from mileage.doctor.rca.series import plain_name
from mileage.doctor.rca.topology import GATEWAY, Topology
from mileage.doctor.rca.trouble import Trouble

__all__ = ["Action", "ActionKind", "suggested"]

ActionKind = Literal[
    "roll_back",
    "add_replicas",
    "remove_replicas",
    "restart",
    "quarantine",
    "talk_to_tenant",
    "none",
]

_CHANCE_MAX: Final = 0.1
"""An event that would lie so near a change by chance more often is no reason to undo it."""
_SURE_MIN: Final = 0.6


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What to do. `replicas`: how many to add or to remove; `version`: of the configuration that is
    to be undone. `command` where there is one."""

    kind: ActionKind
    text: str
    why: str
    node: str | None = None
    replicas: int | None = None
    version: int | None = None
    command: str | None = None


def suggested(
    root: Root,
    trouble: Trouble,
    before: Sequence[Precedent],
    capacity: Capacity | None,
    worn: Sequence[Relation],
    topology: Topology,
) -> list[Action]:
    """Actions against a root cause, the first to be tried first; one of kind `none` where the
    record does not say what would help."""
    if root.score < _SURE_MIN:
        return [_none("the record does not single out a cause")]
    found = []
    # More load is nobody's deployment: what came before it by chance is not undone.
    undo = None if root.from_load else _undo(root, before)
    if undo is not None:
        found.append(undo)
    if root.from_load:
        found += _against_load(root, trouble, capacity)
    else:
        found += _against_node(root, before, worn, topology)
    return found or [_none("nothing that the gateway records says what would help")]


def _undo(root: Root, before: Sequence[Precedent]) -> Action | None:
    for each in before:
        event = each.event
        if event.kind not in ("config", "deploy") or each.chance_ratio > _CHANCE_MAX:
            continue
        if event.node not in (root.node, GATEWAY):
            continue
        when = f"{max(each.lead_s, 0.0):.0f} s before it got worse"
        if event.kind == "config":
            number = "" if event.version is None else f" {event.version}"
            return Action(
                kind="roll_back",
                node=event.node,
                version=event.version,
                text=f"Roll back configuration version{number}: {event.detail}",
                why=f"it came into force {when}",
                command="mileage reload",
            )
        return Action(
            kind="roll_back",
            node=event.node,
            text=f"Roll back the deployment of {plain_name(event.node)}: {event.detail}",
            why=f"it happened {when}",
        )
    return None


def _against_load(root: Root, trouble: Trouble, capacity: Capacity | None) -> list[Action]:
    found = []
    load = trouble.load
    times = "" if load is None or load.size_ratio is None else f" {load.size_ratio:.2g} times"
    kind, _, name = root.node.partition(":")
    if kind in ("tenant", "client"):
        found.append(
            Action(
                kind="talk_to_tenant",
                node=root.node,
                text=f"Talk to {kind} {name}, or set it a rate or a weight",
                why=f"it asks for{times} what is usual at that time",
            )
        )
    if capacity is not None and capacity.needed > capacity.replicas:
        more = capacity.needed - capacity.replicas
        found.append(
            Action(
                kind="add_replicas",
                replicas=more,
                text=f"Add {more} replica{'s' if more > 1 else ''}, if the load is to stay",
                why=f"{capacity.load:.4g} {capacity.signal} came, and one has served "
                f"{capacity.per_replica:.4g} in time so far",
            )
        )
    return found


def _against_node(
    root: Root, before: Sequence[Precedent], worn: Sequence[Relation], topology: Topology
) -> list[Action]:
    kind, _, name = root.node.partition(":")
    names = [name] if kind == "replica" else []
    if kind in ("gpu", "host"):
        names = [
            node.removeprefix("replica:")
            for node in topology.kind("replica")
            if topology.distance(node, root.node) is not None
        ]
    if not names:
        return []
    worn_here = [r for r in worn if r.node == root.node and r.found == "related"]
    if worn_here:
        driver = worn_here[0].driver
        return [
            Action(
                kind="restart",
                node=root.node,
                text=f"Restart {plain_name(root.node)}",
                why=f"its throughput falls as {driver} grows, and a new process begins without",
            )
        ]
    lost = next(
        (e.event for e in before if e.event.node == root.node and e.event.kind == "replica_down"),
        None,
    )
    if lost is not None:
        why = f"it {lost.detail} just before"
        text = f"Restart {plain_name(root.node)}"
        return [Action(kind="restart", node=root.node, text=text, why=why)]
    alone = len(topology.kind("replica")) <= len(names)
    if alone:
        text = f"Restart {plain_name(root.node)}: there is no other replica to serve meanwhile"
        return [
            Action(kind="restart", node=root.node, text=text, why="it got worse without more load")
        ]
    return [
        Action(
            kind="quarantine",
            node=root.node,
            text=f"Send {', '.join(f'replica {each}' for each in names)} no new requests, and look "
            f"at {plain_name(root.node)}",
            why="it got worse first and without more load, while others did not",
            command="; ".join(f"POST /api/v1/replicas/{quote(each)}/disable" for each in names),
        )
    ]


def _none(why: str) -> Action:
    return Action(kind="none", text="Nothing yet", why=why)
