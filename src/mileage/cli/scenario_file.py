"""The file of `mileage simulate --scenario`: what engines can do, and how their fleet is kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.config_document import Document
from mileage.cli.keyed_file import read_keyed
from mileage.core.bounds import require_at_least, require_range
from mileage.sim.scaling import ScalingConfig

__all__ = ["BATCH_MAX", "ScenarioFile", "SharingConfig", "read_scenario"]

BATCH_MAX: Final = 65_536
"""Requests of the largest batch that a CUDA graph may be captured for."""
_PAGE: Final = "docs/reference/scenario.md"


class SharingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[sharing]`: replicas that have one GPU together, or the same GPUs."""

    replicas: int = 1
    """Replicas on each GPU. Each has an equal part of its memory."""
    capacity_ratio: float = 1.0
    """What all that compute at once get together, over what one gets alone: 1 where they take
    turns, above with MPS."""

    def __post_init__(self) -> None:
        require_range("sharing.replicas", self.replicas, 1, 64)
        require_at_least("sharing.capacity_ratio", self.capacity_ratio, 1.0)


class ScenarioFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is simulated, beside what is deployed: `mileage simulate --scenario FILE`."""

    engine: dict[str, Any] = {}
    graph_sizes: tuple[int, ...] | None = None
    """Batch sizes with a captured CUDA graph. Empty: none. None: those that vLLM captures."""
    scaling: ScalingConfig | None = None
    sharing: SharingConfig = SharingConfig()

    def __post_init__(self) -> None:
        for size in self.graph_sizes or ():
            require_range("graph_sizes", size, 1, BATCH_MAX)


_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "scaling": ScalingConfig,
    "sharing": SharingConfig,
}


def read_scenario(path: Path) -> tuple[Document, ScenarioFile]:
    """The file, and what is in it. Raises ConfigError with the line of what is wrong."""
    return read_keyed(path, {}, ScenarioFile, name="--scenario", tables=_TABLES, page=_PAGE)
