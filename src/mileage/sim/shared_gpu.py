"""SharedGpu: replicas on one GPU, each of which is slower while others compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mileage.core.bounds import require_at_least
from mileage.core.errors import ConfigError

if TYPE_CHECKING:
    from mileage.sim.node import Node, ReplicaSpec

__all__ = ["SharedGpu", "share_gpus"]


class SharedGpu:
    """While n of its replicas compute, each runs at `capacity_ratio` / n of its own speed, and none
    faster than alone: 1 is time slicing, more than 1 what they get together under MPS.

    A change takes effect at once: what is left of a step in progress takes longer, or less long.
    """

    __slots__ = ("_capacity_ratio", "nodes")

    def __init__(self, capacity_ratio: float) -> None:
        self._capacity_ratio = capacity_ratio
        self.nodes: list[Node] = []

    def look(self, now_s: float) -> list[Node]:
        """The nodes whose `due_s` has changed with who computes now."""
        engines = [(node, engine) for node in self.nodes for engine in node.engine.members]
        busy = sum(engine.computing for _, engine in engines)
        slowdown = max(1.0, busy / self._capacity_ratio)
        return [node for node, engine in engines if engine.slow_down(slowdown, now_s)]


def share_gpus(specs: Sequence[ReplicaSpec], nodes: Sequence[Node]) -> None:
    """Tell each node which GPU it shares. Raises ConfigError for one that cannot be shared so."""
    gpus: dict[str, SharedGpu] = {}
    ratios: dict[str, float] = {}
    for spec, node in zip(specs, nodes, strict=True):
        name, ratio = spec.shared_gpu, spec.shared_capacity_ratio
        if name is None:
            continue
        require_at_least("replicas.shared_capacity_ratio", ratio, 1.0)
        if ratios.setdefault(name, ratio) != ratio:
            expected = f"the same for all replicas on {name} ({ratios[name]})"
            raise ConfigError("replicas.shared_capacity_ratio", ratio, expected)
        if len(node.engine.members) > 1:
            expected = "no value for a replica of several engines"
            raise ConfigError("replicas.shared_gpu", name, expected)
        node.shared = gpus.setdefault(name, SharedGpu(ratio))
        node.shared.nodes.append(node)
