"""Spellings of fleets and engines on the command line: `0s:1,10m:4`, `2:1.3`, `NAME KEY=VALUE`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mileage.cli.scenario_file import BATCH_MAX, SharingConfig
from mileage.core.errors import ConfigError
from mileage.sim.scaling import ScalingConfig
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["graph_sizes_of", "scaling_of", "sharing_of", "variant_of"]

_KEYS: Final = {"sim.scaling.schedule": "--schedule", "sim.scaling.start_s": "--cold-start"}


def graph_sizes_of(text: str) -> tuple[int, ...]:
    """Batch sizes with a CUDA graph; `none`: there are none. Raises ConfigError."""
    if text == "none":
        return ()
    sizes = [size.strip() for size in text.split(",")]
    if not all(
        size.isascii() and size.isdigit() and 0 < int(size[:7]) <= BATCH_MAX for size in sizes
    ):
        raise ConfigError("--graph-sizes", text, "none, or batch sizes such as 1,2,4,8,16")
    return tuple(int(size) for size in sizes)


def scaling_of(
    schedule: str | None, cold_start: str | None, written: ScalingConfig | None
) -> ScalingConfig | None:
    """When replicas start and stop: as spelled, else as `written` in a file. Raises ConfigError."""
    changes: dict[str, Any] = {}
    if schedule is not None:
        changes["schedule"] = _schedule(schedule)
    if cold_start is not None:
        if schedule is None and written is None:
            raise ConfigError("--cold-start", cold_start, "a --schedule by which replicas start")
        changes["start_s"] = seconds_of("--cold-start", cold_start)
    if not changes:
        return written
    try:
        return msgspec.structs.replace(written or ScalingConfig(), **changes)
    except ConfigError as error:
        raise error.named(_KEYS.get(error.key, error.key)) from None


def _schedule(text: str) -> tuple[tuple[float, int], ...]:
    found = []
    for item in text.split(","):
        at, colon, count = (part.strip() for part in item.partition(":"))
        if not colon or not (count.isascii() and count.isdigit() and len(count) < 7):
            raise ConfigError("--schedule", item.strip(), "TIME:REPLICAS,..., such as 0s:1,10m:4")
        found.append((seconds_of("--schedule", at), int(count)))
    return tuple(found)


def sharing_of(text: str) -> SharingConfig:
    """REPLICAS[:RATIO] on each GPU. Raises ConfigError."""
    count, _, ratio = text.partition(":")
    try:
        return SharingConfig(replicas=int(count), capacity_ratio=float(ratio or 1.0))
    except (ValueError, ConfigError):
        expected = "REPLICAS[:RATIO], such as 2, or 2:1.3 where both get 1.3 times as much done"
        raise ConfigError("--share", text, expected) from None


def variant_of(text: str) -> tuple[str, list[str]]:
    """A name and the options KEY=VALUE behind it. Raises ConfigError."""
    name, *options = text.split() or [""]
    if not name or "=" in name or not options:
        expected = "NAME KEY=VALUE ..., such as 'batched static_batch.size=8'"
        raise ConfigError("--variant", text, expected)
    return name, options
