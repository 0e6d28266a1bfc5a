"""The file of `mileage simulate --scenario`: what engines can do, and how their fleet is kept."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.config_document import Document
from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.sim.scaling import ScalingConfig

__all__ = ["BATCH_MAX", "ScenarioFile", "SharingConfig", "read_scenario"]

BATCH_MAX: Final = 65_536
"""Requests of the largest batch that a CUDA graph may be captured for."""
_CONFIGURATION: Final = "docs/reference/configuration.md"
"""Where the reader of files points at for a key that does not exist."""


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
    try:
        document = Document(path, {}, {}, ScenarioFile)
    except ConfigError as error:
        raise error.named(error.key.replace("--config", "--scenario")) from None
    try:
        return document, document.decode(ScenarioFile)
    except ConfigError as error:
        expected = error.expected
        if expected.endswith(_CONFIGURATION):
            expected = f"{_known(error.key)}; see docs/reference/scenario.md"
        raise ConfigError(error.key, error.value, expected, place=error.place) from None


def _known(key: str) -> str:
    """What is told of a key that does not exist: the nearest ones, else all of its table."""
    table, _, name = key.rpartition(".")
    known = _TABLES.get(table, ScenarioFile).__struct_fields__
    near = get_close_matches(name, known, n=3) or known
    return f"a key such as {', '.join(near)}"
