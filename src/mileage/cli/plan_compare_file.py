"""CompareFile: the deployments that `mileage plan compare` puts side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from mileage.cli.config_document import Document
from mileage.cli.keyed_file import read_keyed
from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.planner.comparison import Quality

__all__ = ["CompareFile", "DeploymentEntry", "read_comparison"]

_PAGE: Final = "docs/how-to/compare-deployments.md"
_DEPLOYMENTS_MAX: Final = 64
_USD_MAX: Final = 1e9


class DeploymentEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table `[[deployments]]`: one way to serve a model.

    With a `gpu` of the catalogue, what is left out is filled from the cost model; keys of the
    engine are spelled as the options of `mileage simulate`.
    """

    name: str
    model: str
    """As in simulate, where there is a `gpu`; else any text."""
    form: str | None = None
    """What is served by what on what, for people. None: made of the keys below."""
    gpu: str | None = None
    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    replicas: int = 1
    precision: str | None = None
    kv_dtype: str = "bf16"
    engine: str = "vllm"
    engine_max_seqs: int | None = None
    engine_tokens: int | None = None
    gpu_memory: float = 0.9
    cards: int | None = None
    """Devices that it takes. None: those of the layout, else one."""
    memory_gb: float | None = None
    """Of each, in 1e9 bytes."""
    usd_per_hour: float | None = None
    """Of all cards together."""
    requests_per_s: float | None = None
    """What it can serve."""
    requests_per_task: float = 1.0
    """Calls that one task makes."""
    quality: Quality | None = None

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigError("deployments.*.name", self.name, "some text")
        for key in ("tp", "dp", "pp", "ep", "replicas", "cards"):
            if (count := getattr(self, key)) is not None:
                require_at_least(f"deployments.*.{key}", count, 1)
        for key in ("memory_gb", "usd_per_hour", "requests_per_s"):
            if (value := getattr(self, key)) is not None:
                require_range(f"deployments.*.{key}", value, 0.0, _USD_MAX)
        require_range("deployments.*.requests_per_task", self.requests_per_task, 1e-6, 1e9)


class CompareFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    deployments: tuple[DeploymentEntry, ...]
    measure: str | None = None
    """Of the quality that the catalogue fills in. None: that which it knows of most."""

    def __post_init__(self) -> None:
        count = len(self.deployments)
        require_range("deployments", count, 1, _DEPLOYMENTS_MAX)
        names = [each.name for each in self.deployments]
        for place, name in enumerate(names):
            if name in names[:place]:
                key = f"deployments[{place}].name"
                raise ConfigError(key, name, "another name for each deployment")


def read_comparison(path: Path) -> tuple[Document, CompareFile]:
    """The file. Raises ConfigError with the line of what is wrong."""
    tables: dict[str, type[msgspec.Struct]] = {}
    for place in range(_DEPLOYMENTS_MAX):
        tables[f"deployments[{place}]"] = DeploymentEntry
        tables[f"deployments[{place}].quality"] = Quality
    return read_keyed(path, {}, CompareFile, name="FILE", tables=tables, page=_PAGE)
