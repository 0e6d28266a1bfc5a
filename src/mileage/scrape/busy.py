"""BusySource: where `compute_busy_ratio` of a replica comes from."""

from __future__ import annotations

from typing import Protocol

from mileage.scrape.dcgm import DcgmSource
from mileage.scrape.nvml import NvmlSource
from mileage.scrape.target import PollTarget
from mileage.wire.fetch import Fetch

__all__ = ["BusySource", "busy_source"]


class BusySource(Protocol):
    """Tells how much of a replica's compute is in use."""

    async def read(self) -> float | None:
        """The share in use since the reading before, 0..1; None where there was none before.

        Raises EngineError where it cannot be known now: that is unknown, and never 0.
        """
        ...

    def close(self) -> None:
        """Nothing is read any more."""
        ...


def busy_source(target: PollTarget, fetch: Fetch) -> BusySource | None:
    """The source that the target names; None where it names none."""
    if target.dcgm_url is not None:
        return DcgmSource(
            target.dcgm_url, target.gpu_ids, fetch=fetch, timeout_s=target.scrape_timeout_s
        )
    return NvmlSource(target.gpu_ids) if target.nvml else None
