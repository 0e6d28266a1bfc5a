"""Looks at GPUs, host and load for a while, each in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from mileage.measure.gpu_sample import GpuSample
from mileage.measure.serving_host import HostMoment, LoadMoment
from mileage.measure.telemetry import Telemetry
from mileage.scrape.cgroup import owner_of_pid
from mileage.scrape.gpu_dcgm_source import DcgmTelemetry
from mileage.scrape.gpu_host import HostTelemetry
from mileage.scrape.gpu_nvml import NvmlTelemetry
from mileage.scrape.host_processes import HostProcesses, find_processes
from mileage.scrape.load_telemetry import LoadTelemetry
from mileage.scrape.server_use_gpu import gpus_of
from mileage.scrape.server_use_process import is_local
from mileage.scrape.telemetry_sampler import SamplerStatus, TelemetrySampler, TelemetrySource
from mileage.wire.fetch import fetch

__all__ = ["WatchPlan", "watch"]

_ADMIN_METRICS: Final = "http://127.0.0.1:8081/metrics"
_PATHS: Final = ("/metrics", "/prometheus/metrics")
_CPU_ROLES: Final = ("engine", "gateway")

Look = GpuSample | HostMoment | LoadMoment


class WatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look. Without `dcgm_urls` and `nvml`: the GPUs of this machine that the server's
    processes run on, and where there are none, its processor in their place."""

    url: str
    dcgm_urls: tuple[str, ...] = ()
    nvml: bool = False
    gpu_ids: tuple[str, ...] = ()
    engine_urls: tuple[str, ...] = ()
    metrics_urls: tuple[str, ...] = ()
    period_s: float = 0.1
    host_memory_gb_per_s: float | None = None


def watch(
    plan: WatchPlan, duration_s: float, *, wait: Callable[[float], None] = time.sleep
) -> tuple[Telemetry, dict[str, SamplerStatus]]:
    """What was seen, and how sampling went, by source. Ctrl-C ends it early."""
    processes, why = _processes(plan)
    sources = _sources(plan, processes, why)
    samplers = {
        name: TelemetrySampler(
            source,
            name=f"telemetry-{name}",
            period_s=plan.period_s,
            looks_max=_room(plan, duration_s),
        )
        for name, source in sources.items()
    }
    for sampler in samplers.values():
        sampler.start()
    try:
        wait(duration_s)
    except KeyboardInterrupt:
        pass  # what was seen by now is judged
    finally:
        states = {name: sampler.stop() for name, sampler in samplers.items()}
    looks: list[Look] = [look for sampler in samplers.values() for look in sampler.samples()]
    looks.sort(key=lambda look: look.at_s)
    missing = {name: text for name, text in why.items() if text}
    missing |= {name: s.error for name, s in states.items() if s.error is not None}
    missing |= {
        name: f"the driver or the server does not answer since {s.hanging_s:.0f} s"
        for name, s in states.items()
        if s.hanging_s > 1.0
    }
    zero_ns = time.time_ns() - time.monotonic_ns()
    return _telemetry(looks, missing, zero_ns), states


def _telemetry(looks: Sequence[Look], missing: dict[str, str], zero_at_utc_ns: int) -> Telemetry:
    return Telemetry(
        samples=tuple(look for look in looks if isinstance(look, GpuSample)),
        hosts=tuple(look for look in looks if isinstance(look, HostMoment)),
        loads=tuple(look for look in looks if isinstance(look, LoadMoment)),
        missing=missing,
        zero_at_utc_ns=zero_at_utc_ns,
    )


def _room(plan: WatchPlan, duration_s: float) -> int:
    return int(duration_s / plan.period_s) + 10


def _processes(plan: WatchPlan) -> tuple[HostProcesses | None, dict[str, str]]:
    """The server's processes on this machine; None, and why, where it or its GPUs are elsewhere:
    nothing of this host holds those up."""
    try:
        local = is_local(plan.engine_urls[0] if plan.engine_urls else plan.url)
        gpus_local = all(map(is_local, plan.dcgm_urls))
    except ValueError as error:
        return None, {"host": str(error)}
    if not local:
        return None, {"host": "the server is on another machine"}
    if not gpus_local:
        return None, {"host": "the exporter is on another machine, and so are its GPUs"}
    found = find_processes(plan.url, plan.engine_urls)
    return found, {} if found.pids.get("engine") else {"engine": found.missing.get("engine", "")}


def _sources(
    plan: WatchPlan, processes: HostProcesses | None, why: dict[str, str]
) -> dict[str, TelemetrySource[Look]]:
    found: dict[str, TelemetrySource[Look]] = {}
    engine = () if processes is None else processes.pids.get("engine", ())
    for number, url in enumerate(plan.dcgm_urls):
        name = "dcgm" if len(plan.dcgm_urls) == 1 else f"dcgm-{number}"
        found[name] = DcgmTelemetry(url, plan.gpu_ids, fetch=fetch)
    used = gpus_of(engine) if engine and not plan.nvml and not found else ()
    if plan.nvml or used:
        found["nvml"] = NvmlTelemetry(plan.gpu_ids or used, owner_of=owner_of_pid)
    as_gpu = not found
    if as_gpu and processes is None:
        why["gpus"] = "name a DCGM exporter that has them (--dcgm)"
    if processes is not None:
        found["host"] = HostTelemetry(
            _finder(plan, processes),
            as_gpu=as_gpu,
            memory_gb_per_s=plan.host_memory_gb_per_s,
        )
    found["load"] = LoadTelemetry(_pages(plan, local=processes is not None), fetch=fetch)
    return found


def _finder(plan: WatchPlan, first: HostProcesses) -> Callable[[], Mapping[str, Sequence[int]]]:
    """What was found already, the first time."""
    known: list[HostProcesses] = [first]

    def find() -> Mapping[str, Sequence[int]]:
        found = known.pop() if known else find_processes(plan.url, plan.engine_urls)
        return {role: pids for role, pids in found.pids.items() if role in _CPU_ROLES}

    return find


def _pages(plan: WatchPlan, *, local: bool) -> list[str]:
    if plan.metrics_urls:
        return list(plan.metrics_urls)
    bases = (*plan.engine_urls, plan.url)
    pages = [base.rstrip("/") + path for base in bases for path in _PATHS]
    return [*pages, _ADMIN_METRICS] if local else pages
