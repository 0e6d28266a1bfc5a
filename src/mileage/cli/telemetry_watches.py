"""TelemetryWatches: looks at GPUs in the places that it is told, and nowhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from mileage.cli.gpu_watch import GpuWatch, Look, gpu_sources
from mileage.scrape.telemetry_sampler import SamplerStatus, TelemetrySource
from mileage.storage.gpu_minutes import GpuMinute

__all__ = ["Place", "Spec", "TelemetryWatches", "Watches"]

_STOP_WAIT_S: Final = 2.0


class Place(NamedTuple):
    """Where to look: `dcgm` with a URL, `nvml` or `host`; and at which GPUs, () for all."""

    kind: str
    url: str = ""
    gpu_ids: tuple[str, ...] = ()


class Spec(NamedTuple):
    """A place, and how often to look there at most."""

    place: Place
    period_s: float
    cpu_ratio_max: float


class Watches(Protocol):
    """Looks where it is told to. No method but `stop` blocks."""

    def configure(self, specs: Sequence[Spec]) -> None:
        """Look there, and nowhere else; what stays the same goes on."""
        ...

    def status(self) -> dict[str, SamplerStatus]:
        """How it goes, by source."""
        ...

    def stop(self) -> None:
        """End, and tell the minutes that are open."""
        ...


class TelemetryWatches:
    """In this process: each place has a thread of its own, which a driver that hangs holds up and
    nothing else.

    `store` takes the minutes that have ended, in such a thread. `pids` tells the processes of the
    engine of our own, for the place `host`. No method but `stop` blocks, two seconds at most.
    """

    def __init__(
        self,
        store: Callable[[Sequence[GpuMinute]], None],
        *,
        host: str,
        pids: Callable[[], Sequence[int]] = tuple,
        open_source: Callable[[Place], Mapping[str, TelemetrySource[Look]]] | None = None,
        utc_s: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._host, self._pids, self._utc_s = store, host, pids, utc_s
        self._open_source = open_source or self._open
        self._watches: dict[Spec, GpuWatch] = {}

    def configure(self, specs: Sequence[Spec]) -> None:
        """See Watches."""
        for spec in self._watches.keys() - set(specs):
            watch = self._watches.pop(spec)
            watch.end()
            threading.Thread(target=watch.stop, name="telemetry-end", daemon=True).start()
        for spec in specs:
            if spec not in self._watches:
                watch = self._watches[spec] = GpuWatch(
                    self._open_source(spec.place),
                    self._store,
                    period_s=spec.period_s,
                    cpu_ratio_max=spec.cpu_ratio_max,
                    looks_max=1,  # an exporter may have a thousand GPUs
                    host=self._host,
                    utc_s=self._utc_s,
                )
                watch.start()

    def status(self) -> dict[str, SamplerStatus]:
        """See Watches."""
        return {
            name: state
            for watch in self._watches.values()
            for name, state in watch.status().items()
        }

    def stop(self) -> None:
        """End, and tell the minutes that are open; waits two seconds at most for all together."""
        for watch in self._watches.values():
            watch.end()
        until_s = time.monotonic() + _STOP_WAIT_S
        for watch in self._watches.values():
            watch.stop(max(0.0, until_s - time.monotonic()))

    def _open(self, place: Place) -> Mapping[str, TelemetrySource[Look]]:
        return gpu_sources(
            dcgm={place.url: place.gpu_ids} if place.kind == "dcgm" else None,
            nvml_gpu_ids=place.gpu_ids if place.kind == "nvml" else None,
            pids=self._pids if place.kind == "host" else None,
        )
