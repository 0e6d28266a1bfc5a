"""BusySource: where `compute_busy_ratio` of a replica comes from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from mileage.core.errors import EngineError
from mileage.measure.gpu_sample import GpuSample
from mileage.scrape.gpu_dcgm_source import DcgmPage
from mileage.scrape.gpu_looks import GpuLooks, NvmlLooks, wholes
from mileage.scrape.gpu_nvml import NvmlTelemetry
from mileage.scrape.target import PollTarget
from mileage.wire.fetch import Fetch

__all__ = ["DCGM", "NVML", "BusySource", "GpuBusy", "GpuCounter", "busy_mean", "busy_source"]

_FIELDS: Final = ("sm_active_ratio", "gpu_util_ratio")


class GpuCounter(NamedTuple):
    """What a source calls the share of multiprocessors in use, and what may help."""

    name: str
    if_absent: str
    if_stopped: str = ""


DCGM: Final = GpuCounter(
    "DCGM_FI_PROF_SM_ACTIVE",
    "blank, or not in the exporter's list of counters, which leaves it out by default",
    "; `dcgmi dmon -e 1002 -c 1` or a restart of the exporter mostly revives it",
)
NVML: Final = GpuCounter(
    "SM_UTIL", "GPM has it on Hopper GPUs and newer, others need a DCGM exporter"
)


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


class GpuBusy:
    """The mean SM_ACTIVE of GPUs. After every error they are opened anew."""

    def __init__(
        self, looks: GpuLooks, counter: GpuCounter, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._looks, self._counter, self._clock = looks, counter, clock

    async def read(self) -> float | None:
        """See BusySource."""
        samples = await self._looks.look(self._clock())
        if self._looks.begins:
            return None
        try:
            return busy_mean(samples, self._counter)
        except ValueError as error:
            self._looks.close()
            raise EngineError(self._looks.name, str(error)) from None

    def close(self) -> None:
        """Nothing is read any more."""
        self._looks.close()


def busy_mean(samples: Sequence[GpuSample], counter: GpuCounter) -> float:
    """Mean of `sm_active_ratio` over the GPUs, as `wholes` counts them.

    Raises ValueError, which says why, where one of them does not tell, or cannot be believed: 0
    while kernels ran all the time is a known failure of the counters, and a GPU that is taken to be
    idle for it would be given ever more, or ever less, work. Other figures are no substitute:
    `gpu_util_ratio` and `gr_active_ratio` are 1 as soon as any kernel runs.
    """
    chosen = wholes(samples, _FIELDS[0])
    if not chosen:
        raise ValueError("has no GPU")
    ratios = []
    for sample in chosen:
        if sample.sm_active_ratio is None:
            raise ValueError(_why(sample, counter))
        ratios.append(sample.sm_active_ratio)
    return math.fsum(ratios) / len(ratios)


def busy_source(target: PollTarget, fetch: Fetch) -> BusySource | None:
    """The source that the target names; None where it names none."""
    if target.dcgm_url is not None:
        page = DcgmPage(
            target.dcgm_url,
            target.gpu_ids,
            fetch=fetch,
            timeout_s=target.scrape_timeout_s,
            figures=_FIELDS,
        )
        return GpuBusy(page, DCGM)
    if target.nvml:
        return GpuBusy(NvmlLooks(NvmlTelemetry(target.gpu_ids, counters_only=True)), NVML)
    return None


def _why(sample: GpuSample, counter: GpuCounter) -> str:
    figure = f"{counter.name} of GPU {sample.gpu.label}"
    for doubt in sample.doubts:
        name, _, why = doubt.partition(": ")
        if name == _FIELDS[0]:
            return f"{figure}: {why}" + (counter.if_stopped if why.endswith("stopped") else "")
    return f"has no {figure}: {counter.if_absent}"
