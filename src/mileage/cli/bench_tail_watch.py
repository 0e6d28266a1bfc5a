"""TailWatch: all that is looked at beside a run, to tell later where its tail comes from."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import msgspec
import psutil
from msgspec.structs import replace

from mileage.measure.tail_host import Pause
from mileage.measure.tail_pauses import host_pauses
from mileage.measure.tail_stage import Role
from mileage.measure.tail_usual import above_usual
from mileage.scrape.host_ebpf_trace import KernelTracer
from mileage.scrape.host_gateway import GatewayPauses
from mileage.scrape.host_gc import GcWatch
from mileage.scrape.host_processes import HostProcesses, find_processes
from mileage.scrape.host_sampler import HostSampler, HostSeries

__all__ = ["Source", "TailWatch", "WatchOptions"]

_REPORT_S = 1.2
"""A gateway's workers report once a second: what happened last is told by then."""


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be looked at."""

    url: str
    engine_urls: tuple[str, ...] = ()
    admin_url: str | None = None
    """None: there is no admin plane to ask."""
    admin_token: str | None = None
    host: bool = True
    ebpf: bool = False
    pids: dict[Role, list[int]] | None = None
    """Processes by role; None: found by the port that they listen on."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to look at: whether it was seen, and what of it, or why not."""

    name: str
    seen: bool
    detail: str


class TailWatch:
    """Looks from `start` to `stop`. Nothing that cannot be seen raises: its source says why."""

    def __init__(self, options: WatchOptions) -> None:
        self._options = options
        self._sampler: HostSampler | None = None
        self._tracer: KernelTracer | None = None
        self._gateway: GatewayPauses | None = None
        self._gc = GcWatch()
        self._processes = HostProcesses(pids={}, missing={})
        self._pauses: list[Pause] = []
        self.sources: list[Source] = []
        """What was seen; complete after `stop`."""

    async def start(self) -> None:
        """Begin."""
        options = self._options
        if options.host:
            if options.pids is not None:
                self._processes = HostProcesses(pids=options.pids, missing={})
            else:
                self._processes = await asyncio.to_thread(
                    find_processes, options.url, options.engine_urls
                )
            if options.ebpf:
                self._tracer = KernelTracer(self._processes.pids)
                await asyncio.to_thread(self._tracer.start)
            self._sampler = HostSampler(self._processes.pids)
            self._sampler.start()
        if options.admin_url is not None:
            self._gateway = GatewayPauses(options.admin_url, options.admin_token)
            await self._gateway.start()
        self._gc.start()

    async def stop(self) -> None:
        """End, and put together what was seen."""
        found = self._gc.stop()
        traced: set[str] = set()
        if self._tracer is not None:
            kernel = await asyncio.to_thread(self._tracer.stop)
            found += kernel
            traced = {"run_queue", "stopped"} if kernel else set()
        if self._sampler is not None:
            series = await asyncio.to_thread(self._sampler.stop)
            seen = host_pauses(series.samples, minor_fault_s=series.minor_fault_s)
            sampled = above_usual(seen, series.samples)
            # What was timed in the kernel is exact: no need of what was sampled of the same.
            found += (pause for pause in sampled if pause.cause not in traced)
            self.sources += self._host_sources(series)
        else:
            self.sources.append(Source(name="processes", seen=False, detail="not looked at"))
        if self._gateway is not None:
            await asyncio.sleep(_REPORT_S)
            ahead_s = time.time() - time.monotonic()
            told = await self._gateway.stop()
            found += (_earlier(pause, ahead_s) for pause in told)
            self.sources.append(_gateway_source(self._gateway, told))
        self._pauses = found

    def pauses(self, zero_monotonic_s: float) -> list[Pause]:
        """The pauses in seconds since a run began whose zero this was on time.monotonic()."""
        return [_earlier(pause, zero_monotonic_s) for pause in self._pauses]

    def _host_sources(self, series: HostSeries) -> list[Source]:
        sources = []
        for role in ("generator", "gateway", "engine"):
            pids = self._processes.pids.get(role, [])
            why = self._processes.missing.get(role)
            if pids:
                detail = f"process {', '.join(map(str, pids))}"
                sources.append(Source(name=role, seen=True, detail=detail))
            elif why is not None or role == "engine":
                detail = why or "no process of it is known"
                sources.append(Source(name=role, seen=False, detail=detail))
        detail = f"each {series.period_s * 1e3:.0f} ms, for {series.cpu_ratio:.1%} of a CPU"
        sources.append(Source(name="kernel", seen=len(series.samples) > 1, detail=detail))
        sources += (
            Source(name=name, seen=False, detail=why) for name, why in series.missing.items()
        )
        if any(map(_is_foreign_python, self._processes.pids.get("engine", ()))):
            why = "an engine in Python does not tell others when it collects"
            sources.append(Source(name="engine's garbage collection", seen=False, detail=why))
        if self._tracer is not None:
            missing = self._tracer.missing
            detail = missing or "by bpftrace"
            whole = missing is None or missing.startswith("not all")
            sources.append(Source(name="eBPF", seen=whole, detail=detail))
        return sources


def _gateway_source(gateway: GatewayPauses, told: Sequence[Pause]) -> Source:
    if gateway.missing is not None and not told:
        return Source(name="gateway's pauses", seen=False, detail=gateway.missing)
    return Source(
        name="gateway's pauses",
        seen=True,
        detail=f"{len(told)} of 5 ms or more, by its admin plane",
    )


def _earlier(pause: Pause, by_s: float) -> Pause:
    return replace(pause, start_s=pause.start_s - by_s, end_s=pause.end_s - by_s)


def _is_foreign_python(pid: int) -> bool:
    """A process of Python that is none of ours: the embedded engine computes in C++."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return "python" in process.name() and not any(
            "mileage" in word for word in process.cmdline()
        )
    return False
