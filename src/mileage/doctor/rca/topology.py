"""Topology: who sends requests to whom, and so which way load and slowness travel."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Literal

from mileage.doctor.rca.series import History

__all__ = ["GATEWAY", "Relation", "Topology", "topology_of"]

GATEWAY: Final = "gateway"

Relation = Literal["feeds", "serves", "beside", "rivals"]
"""Of a node to another. feeds: its requests reach the other, so load travels; serves: it works for
the other, so slowness travels; beside: both serve the same, so what one cannot take the other gets;
rivals: both ask the same, so the load of one slows the other."""

_ABOVE: Final = ("tenant", "client")


class Topology:
    """A directed graph: an edge goes from who asks to who serves."""

    def __init__(self, edges: Iterable[tuple[str, str]], nodes: Iterable[str] = ()) -> None:
        self._down: dict[str, set[str]] = {}
        self._up: dict[str, set[str]] = {}
        for node in nodes:
            self._add(node)
        for above, below in edges:
            self._add(above)
            self._add(below)
            if above != below:
                self._down[above].add(below)
                self._up[below].add(above)
        self._reached = {node: _reach(self._down, node) for node in self._down}

    def _add(self, node: str) -> None:
        self._down.setdefault(node, set())
        self._up.setdefault(node, set())

    @property
    def nodes(self) -> list[str]:
        """All nodes, sorted."""
        return sorted(self._down)

    @property
    def edges(self) -> list[tuple[str, str]]:
        """All edges, sorted."""
        return sorted((above, below) for above, under in self._down.items() for below in under)

    def kind(self, kind: str) -> list[str]:
        """Nodes of a kind: `replica`, ..."""
        return [node for node in self.nodes if node == kind or node.startswith(f"{kind}:")]

    def users(self, node: str) -> list[str]:
        """Who asks it directly, sorted."""
        return sorted(self._up.get(node, ()))

    def distance(self, above: str, below: str) -> int | None:
        """Edges from `above` down to `below`; None where no way leads there."""
        return self._reached.get(above, {}).get(below)

    def relation(self, cause: str, effect: str) -> Relation | None:
        """How what happens at `cause` could reach `effect`; None: not at all."""
        if cause == effect or cause not in self._down or effect not in self._down:
            return None
        if self.distance(cause, effect) is not None:
            return "feeds"
        if self.distance(effect, cause) is not None:
            return "serves"
        if self._up[cause] & self._up[effect]:
            return "beside"
        return "rivals" if self._down[cause] & self._down[effect] else None


def _reach(down: dict[str, set[str]], start: str) -> dict[str, int]:
    reached = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for below in sorted(down[node]):
            if below not in reached:
                reached[below] = reached[node] + 1
                queue.append(below)
    del reached[start]
    return reached


def topology_of(history: History) -> Topology:
    """The graph of a history: tenants and clients ask the gateway, the gateway asks the replicas,
    each replica runs on the GPUs and the host that the history links it with, or that has its name:
    `replica:h100-a:8000` on `host:h100-a`, whose GPU 0 is `gpu:h100-a/0`."""
    nodes = {each.node for each in history.series} | {event.node for event in history.events}
    nodes |= {node for link in history.links for node in link} | {GATEWAY}
    edges = set(history.links)
    edges |= {(node, GATEWAY) for node in nodes if node.split(":")[0] in _ABOVE}
    replicas = [node for node in nodes if node.startswith("replica:")]
    edges |= {(GATEWAY, node) for node in replicas}
    hosts = {node.removeprefix("host:"): node for node in nodes if node.startswith("host:")}
    gpus = [node for node in nodes if node.startswith("gpu:")]
    linked = {above for above, _ in history.links}
    for node in gpus:
        host = node.removeprefix("gpu:").rpartition("/")[0]
        if host in hosts:
            edges.add((node, hosts[host]))
    for replica in replicas:
        host = _host_of(replica)
        if replica in linked:
            continue
        edges |= {(replica, gpu) for gpu in gpus if _gpu_host(gpu) == host}
        if host in hosts:
            edges.add((replica, hosts[host]))
    return Topology(edges, nodes)


def _host_of(replica: str) -> str:
    name = replica.removeprefix("replica:")
    host, colon, port = name.rpartition(":")
    return host if colon and port.isdecimal() else name


def _gpu_host(gpu: str) -> str:
    return gpu.removeprefix("gpu:").rpartition("/")[0]
