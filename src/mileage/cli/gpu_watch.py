"""GpuWatch: samples the GPUs of a gateway's replicas; minutes of them go to the ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from mileage.measure.gpu_rollup import GpuRollup, MinuteRollups
from mileage.measure.gpu_sample import GpuSample
from mileage.measure.measured_weights import MeasuredWeights, measured_weights
from mileage.measure.serving_host import HostMoment
from mileage.scrape.cgroup import owner_of_pid
from mileage.scrape.gpu_dcgm_source import DcgmTelemetry
from mileage.scrape.gpu_host import HostTelemetry
from mileage.scrape.gpu_nvml import NvmlTelemetry
from mileage.scrape.telemetry_sampler import SamplerStatus, TelemetrySampler, TelemetrySource
from mileage.storage.gpu_minutes import GpuMinute
from mileage.wire.fetch import fetch
from mileage.wire.url import display_url

__all__ = ["GpuWatch", "gpu_sources", "minutes_of"]

_LOG = logging.getLogger(__name__)
_LOOKS_MAX: Final = 1_200
"""Two minutes at 100 ms: enough for weights."""
_STOP_WAIT_S: Final = 2.0
_PAUSE_S: Final = 0.0002
"""Between two GPUs: eight of them would hold a core for some milliseconds otherwise, ten times a
second, and a gateway that wants it would wait."""

Look = GpuSample | HostMoment


def gpu_sources(
    *,
    dcgm: Mapping[str, Sequence[str]] | None = None,
    nvml_gpu_ids: Sequence[str] | None = None,
    pids: Callable[[], Sequence[int]] | None = None,
) -> dict[str, TelemetrySource[Look]]:
    """Sources by name: exporters' URLs with the GPUs wanted of each (() means all), this machine's
    GPUs (() means all, None none), and a processor in place of a GPU for the engine whose processes
    `pids` tells (None: there is no such engine)."""
    found: dict[str, TelemetrySource[Look]] = {
        f"dcgm {display_url(url)}": DcgmTelemetry(url, gpu_ids, fetch=fetch)
        for url, gpu_ids in (dcgm or {}).items()
    }
    if nvml_gpu_ids is not None:
        found["nvml"] = NvmlTelemetry(tuple(nvml_gpu_ids), owner_of=owner_of_pid, pause_s=_PAUSE_S)
    if pids is not None:
        found["host"] = HostTelemetry(partial(_roles, pids), as_gpu=True)
    return found


def _roles(pids: Callable[[], Sequence[int]]) -> Mapping[str, Sequence[int]]:
    return {"engine": pids()}


class GpuWatch:
    """Samples from `start` to `stop`, each source in a thread of its own.

    `store` is given the minutes that have ended, in such a thread: it must not block for long.
    `host` is what the machine is called in them where the source does not tell. Of each source the
    last `looks_max` looks are kept, for `samples` and `weights`.
    """

    def __init__(
        self,
        sources: Mapping[str, TelemetrySource[Look]],
        store: Callable[[Sequence[GpuMinute]], None],
        *,
        period_s: float = 0.1,
        cpu_ratio_max: float = 0.01,
        looks_max: int = _LOOKS_MAX,
        host: str = "",
        utc_s: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._host, self._utc_s = store, host, utc_s
        self._minutes = {name: MinuteRollups() for name in sources}
        self._samplers = {
            name: TelemetrySampler(
                source,
                name=f"telemetry-{name}",
                period_s=period_s,
                cost_ratio_max=cpu_ratio_max,
                looks_max=looks_max,
                sink=partial(self._take, name),
            )
            for name, source in sources.items()
        }

    def start(self) -> None:
        """Begin."""
        for sampler in self._samplers.values():
            sampler.start()

    def end(self) -> None:
        """Take no further look; `stop` is still to be called."""
        for sampler in self._samplers.values():
            sampler.end()

    def stop(self, wait_s: float = _STOP_WAIT_S) -> None:
        """End, and store the minutes that are open; waits so long at most for all sources together.
        Of one that hangs the open minute is lost."""
        self.end()
        until_s = time.monotonic() + wait_s
        for name, sampler in self._samplers.items():
            sampler.stop(max(0.0, until_s - time.monotonic()))
            if sampler.ended:
                self._tell(self._minutes[name].close())

    def status(self) -> dict[str, SamplerStatus]:
        """How sampling goes, by source."""
        return {name: sampler.status() for name, sampler in self._samplers.items()}

    def samples(self) -> list[GpuSample]:
        """Those of the last minutes, of all sources."""
        return [
            look
            for sampler in self._samplers.values()
            for look in sampler.samples()
            if isinstance(look, GpuSample)
        ]

    def weights(self) -> MeasuredWeights | None:
        """What the GPUs' time of the last minutes was spent on; None where counters do not tell."""
        return measured_weights(self.samples())

    def _take(self, name: str, looks: Sequence[Look]) -> None:
        samples = [look for look in looks if isinstance(look, GpuSample)]
        self._tell(self._minutes[name].add(samples, at_utc_s=self._utc_s()))

    def _tell(self, rollups: Sequence[GpuRollup]) -> None:
        rows = [row for rollup in rollups for row in minutes_of(rollup, self._host)]
        if not rows:
            return
        try:
            self._store(rows)
        except Exception:  # a ledger that fails must not end sampling
            _LOG.exception("minutes of GPUs could not be stored")


def minutes_of(rollup: GpuRollup, host: str = "") -> list[GpuMinute]:
    """The rows of one GPU and minute, one per figure that was known. `host`: where the GPU does not
    tell it."""
    gpu = rollup.gpu
    name = gpu.number or gpu.uuid or "cpu"
    if gpu.instance:
        name = f"{name}/{gpu.instance}"
    return [
        GpuMinute(
            minute_at_utc_s=rollup.minute_at_utc_s,
            host=gpu.host or host,
            gpu=name,
            field=field,
            mean=figure.mean,
            max=figure.most,
            samples=figure.samples,
        )
        for field, figure in rollup.figures.items()
    ]
