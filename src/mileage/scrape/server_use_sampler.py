"""UseSampler: one look after another at all that is known of the server under test, as samples."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from mileage.core.errors import EngineError
from mileage.core.replica import ReplicaView
from mileage.measure.server_use import Basis, Figure, UseSample, UseSeries
from mileage.scrape.inquiry import Inquiry
from mileage.scrape.server_use_cpu import CpuLook, CpuUse
from mileage.scrape.server_use_energy import RaplEnergy
from mileage.scrape.server_use_gpu import GpuLook, GpuUse, dcgm_use, gpus_of, nvml_use
from mileage.scrape.server_use_process import find_server, is_local
from mileage.scrape.target import PollTarget
from mileage.wire.fetch import Fetch
from mileage.wire.url import display_url, origin

__all__ = ["UseOptions", "UseSampler"]

_METRICS_INTERVAL_MAX_S = 60.0
_METRICS_PATHS = ("/metrics", "/prometheus/metrics")
_FIGURES: tuple[Figure, ...] = ("utilisation_ratio", "memory_bytes", "energy_j")
_COUNTERS = ("prompt_tokens_total", "output_tokens_total", "prefix_cache_query_tokens_total")


class UseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look. Only `url`, what the load is sent to, must be given.

    GPUs: `dcgm_url` is the page of a DCGM exporter; `gpu_ids` are those on it, or, without one, of
    this machine ("all": every one). With neither, those GPUs of this machine count on which a
    process of the server runs. `engine_urls` are the engines behind `url`, where that is a gateway
    or a proxy; `metrics_urls` pages with an engine's metrics: None: the usual ones of the only
    engine's origin, (): do not ask. `authorization` goes to `url`'s own origin alone.
    """

    url: str
    authorization: str | None = None
    engine_urls: tuple[str, ...] = ()
    metrics_urls: tuple[str, ...] | None = None
    dcgm_url: str | None = None
    gpu_ids: tuple[str, ...] | None = None
    interval_s: float = 1.0
    metrics_interval_s: float = 2.0
    """An engine's page is long, and reading it takes the interpreter from the load generator."""
    timeout_s: float = 2.0


class UseSampler:
    """Takes samples; nothing that goes wrong in one raises, and each figure tells why it is None.

    What a figure means is settled by the first look that knows it, and does not change after.
    """

    def __init__(self, options: UseOptions, *, clock: Callable[[], float], fetch: Fetch) -> None:
        self._options, self._clock, self._fetch = options, clock, fetch
        self._cpu: CpuUse | None = None
        self._cpu_why = ""
        self._gpu: GpuUse | None = None
        self._gpu_sought = False
        self._rapl = RaplEnergy()
        target = self._metrics_target()
        self._metrics, self._has_metrics = Inquiry(target, fetch), bool(target.metrics_urls)
        self._view: ReplicaView | None = None  # read since the last look
        self._counters: dict[str, float] = {}
        self._energy: tuple[float, float] | None = None  # clock, and counter or power
        self._epoch = 0
        self._was_away = False
        self._samples: list[UseSample] = []
        self._basis: dict[Figure, Basis] = {}
        self._missing: dict[Figure, str] = {}
        self._open()

    def series(self) -> UseSeries:
        """All samples so far."""
        missing = {f: why for f, why in self._missing.items() if f not in self._basis}
        return UseSeries(samples=tuple(self._samples), basis=dict(self._basis), missing=missing)

    def close(self) -> None:
        """No look follows."""
        if self._gpu is not None:
            self._gpu.close()

    async def watch_metrics(self) -> None:
        """Read the engine's metrics again and again, until cancelled; a slow page delays no look.

        A server without metrics is asked less and less often.
        """
        wait_s = interval_s = self._options.metrics_interval_s
        while self._has_metrics:
            try:
                self._view = (await self._metrics.metrics(self._clock)).view
                self._compare(self._view)
                wait_s = interval_s
            except EngineError:  # what can be told without is
                wait_s = max(interval_s, min(2 * wait_s, _METRICS_INTERVAL_MAX_S))
            await asyncio.sleep(wait_s)

    async def look(self) -> None:
        """Take one sample."""
        at_s = self._clock()
        cpu = self._look_cpu()
        self._seek_gpus(cpu)
        gpu = await self._look_gpu()
        view, self._view = self._view, None
        found: dict[Figure, tuple[float | int | None, Basis] | None] = {}
        if self._gpu is not None:
            if gpu is not None:
                self._from_gpu(gpu, at_s, found)
        else:
            self._from_cpu(cpu, found)
        values = {figure: self._settle(figure, found.get(figure)) for figure in _FIGURES}
        memory = values["memory_bytes"]
        self._samples.append(
            UseSample(
                at_s=at_s,
                epoch=self._epoch,
                utilisation_ratio=values["utilisation_ratio"],
                memory_bytes=None if memory is None else int(memory),
                energy_j=values["energy_j"],
                kv_cache_usage_ratio=None if view is None else view.kv_cache_usage_ratio,
                running=None if view is None else view.running,
                waiting=None if view is None else view.waiting,
                gateway_cpu_cores=None if cpu is None else cpu.gateway_cpu_cores,
                gateway_memory_bytes=None if cpu is None else cpu.gateway_memory_bytes,
            )
        )

    def _open(self) -> None:
        options = self._options
        try:
            local = all(map(is_local, options.engine_urls or (options.url,)))
        except ValueError as error:
            local = False
            self._cpu_why = str(error)
        if local:
            find = partial(find_server, options.url, options.engine_urls)
            self._cpu = CpuUse(find, clock=self._clock)
        else:
            self._cpu_why = self._cpu_why or (
                "the server is on another machine: name a DCGM exporter that has its GPUs"
            )
        if options.dcgm_url is not None:
            self._gpu = dcgm_use(
                options.dcgm_url,
                () if options.gpu_ids in (None, ("all",)) else options.gpu_ids or (),
                fetch=self._fetch,
                timeout_s=options.timeout_s,
            )
        elif options.gpu_ids:
            self._gpu = nvml_use(() if options.gpu_ids == ("all",) else options.gpu_ids)

    def _metrics_target(self) -> PollTarget:
        options = self._options
        urls = options.metrics_urls
        base = options.engine_urls[0] if len(options.engine_urls) == 1 else options.url
        if urls is None and len(options.engine_urls) < 2:
            try:
                scheme, host, port = origin(base)
            except ValueError:
                scheme, host, port = "http", "invalid", 0  # told by whoever sends the load
            host = f"[{host}]" if ":" in host else host
            urls = tuple(f"{scheme}://{host}:{port}{path}" for path in _METRICS_PATHS)
        return PollTarget(
            kind="openai",
            name=display_url(base),
            url=options.url,
            health_urls=(base,),
            models_url=base,
            metrics_urls=urls or (),
            authorization=options.authorization,
            scrape_timeout_s=options.timeout_s,
        )

    def _look_cpu(self) -> CpuLook | None:
        if self._cpu is None:
            return None
        try:
            look = self._cpu.look()
        except EngineError as error:
            self._cpu_why = error.message
            if self._cpu.is_away and not self._was_away:
                self._new_epoch()
                self._was_away = True
            return None
        self._was_away = False
        if look.is_new:
            self._new_epoch()
        return look

    def _new_epoch(self) -> None:
        self._epoch += 1
        self._energy = None

    def _seek_gpus(self, cpu: CpuLook | None) -> None:
        """At the first look at the server's processes: do they run on GPUs of this machine?"""
        if self._gpu is not None or self._gpu_sought or cpu is None:
            return
        self._gpu_sought = True
        if self._options.gpu_ids is None and (gpus := gpus_of(cpu.pids)):
            self._gpu = nvml_use(gpus)

    async def _look_gpu(self) -> GpuLook | None:
        if self._gpu is None:
            return None
        try:
            return await self._gpu.look()
        except EngineError as error:
            self._energy = None
            for figure in _FIGURES:
                self._missing[figure] = str(error)
            return None

    def _compare(self, view: ReplicaView) -> None:
        """Counters that go back are those of another process."""
        counters = {name: value for name in _COUNTERS if (value := getattr(view, name)) is not None}
        went_back = any(value < self._counters.get(name, 0.0) for name, value in counters.items())
        if went_back and self._cpu is None:  # on this machine its processes tell it better
            self._new_epoch()
        self._counters = counters

    def _from_gpu(
        self,
        look: GpuLook,
        at_s: float,
        found: dict[Figure, tuple[float | int | None, Basis] | None],
    ) -> None:
        self._missing.update(look.missing)
        found["utilisation_ratio"] = look.utilisation_ratio, look.utilisation_basis
        found["memory_bytes"] = look.memory_bytes, "gpu_memory"
        last, energy_j = self._energy, None
        if look.energy_total_j is not None:
            if last is not None and look.energy_total_j >= last[1]:
                energy_j = look.energy_total_j - last[1]
            self._energy = at_s, look.energy_total_j
            found["energy_j"] = energy_j, "gpu_energy"
        elif look.power_w is not None:
            if last is not None:
                energy_j = (look.power_w + last[1]) / 2 * (at_s - last[0])
            self._energy = at_s, look.power_w
            found["energy_j"] = energy_j, "gpu_power"

    def _from_cpu(
        self,
        look: CpuLook | None,
        found: dict[Figure, tuple[float | int | None, Basis] | None],
    ) -> None:
        if look is None:
            self._missing["utilisation_ratio"] = self._missing["memory_bytes"] = self._cpu_why
            self._missing["energy_j"] = self._cpu_why
            return
        found["utilisation_ratio"] = look.utilisation_ratio, "process_cpu"
        found["memory_bytes"] = look.memory_bytes, look.memory_basis
        try:
            found["energy_j"] = self._rapl.read(), "machine_rapl"
        except EngineError as error:
            self._missing["energy_j"] = error.message

    def _settle(
        self, figure: Figure, found: tuple[float | int | None, Basis] | None
    ) -> float | int | None:
        if found is None or found[0] is None:
            return None
        value, basis = found
        return value if self._basis.setdefault(figure, basis) == basis else None
