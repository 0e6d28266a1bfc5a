"""The file of `mileage simulate --scenario`: what engines can do, and how their fleet is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mileage.cli.config_document import Document
from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.sim.scaling import ScalingConfig

__all__ = ["ScenarioFile", "SharingConfig", "read_scenario"]


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


def read_scenario(path: Path) -> tuple[Document, ScenarioFile]:
    """The file, and what is in it. Raises ConfigError with the line of what is wrong."""
    try:
        document = Document(path, {}, {}, ScenarioFile)
    except ConfigError as error:
        key = error.key.replace("--config", "--scenario")
        raise ConfigError(key, error.value, error.expected, place=error.place) from None
    return document, document.decode(ScenarioFile)
