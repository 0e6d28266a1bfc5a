"""Telemetry's cost: CPU time of sampling eight GPUs every 100 ms, and its effect on a gateway.

`make bench-telemetry`, or `python -m benchmarks.telemetry [--json] [--seconds N] [--pairs N]`.
GPUs are played by a C library whose calls burn CPU time as a driver's do. Exit code: 0 all bars
met, 1 one missed, 3 no verdict.

The effect is that of the program as it is: `mileage serve` with an engine of `nvml = true`, all of
its processes on one core, the telemetry's too. Streams run without a break, and the telemetry's
process is stopped and continued under them, in turns of a second: off, on, on, off. A round of its
own for each state told less: what the gateway does every 20 seconds (shares of GPU time) fell into
one round and not into the other, and rounds minutes apart differ by more than the 5 % in question.
Neighbouring slots are compared; where the bar is within the interval of their median (95 %, by
ranks), there is no verdict.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support.engine_upstream import EngineUpstream
from benchmarks.support.machine import describe, pinned
from benchmarks.support.mileage import MileageStack
from benchmarks.support.nvml_played import GPUS, PlayedNvml, dcgm_page
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.paced_slots import SlotRun, compared, paced_slots
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.stacks import Upstreams
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE, disturbances
from mileage.scrape.gpu_dcgm import dcgm_samples
from mileage.scrape.gpu_host import HostTelemetry
from mileage.scrape.gpu_nvml import NvmlTelemetry
from mileage.scrape.telemetry_sampler import SamplerStatus, TelemetrySampler, TelemetrySource

__all__ = ["main"]

CALLS_US = (0.0, 5.0, 50.0, 200.0)
"""CPU time of a call into the driver, or of a field: none, and what drivers take."""
BESIDE_US = 50.0
CHILD_MODULE = "mileage.cli.telemetry_child"
SLOT_S = 1.0
BEGIN_S = 15.0
"""By then the driver is opened, which is paid off, and the pace is found."""
RATIO_MAX = 1.05
PERIOD_S = 0.1
BARS = (
    Bar("cpu_ratio_max", 0.012, at_least=False),
    Bar("process_cpu_ratio_max", 0.02, at_least=False),
    Bar("period_ms_at_5_us", 101, at_least=False),
    Bar("host_period_ms", 101, at_least=False),
    Bar("dcgm_cpu_ratio", 0.01, at_least=False),
    Bar("gateway_cpu_per_event_ratio", RATIO_MAX, at_least=False, comparative=True),
    Bar("gateway_delay_p50_ratio", 1.10, at_least=False, comparative=True),
)
"""The sampler's own account of its CPU time is held against the process's, which has more in it."""


class _Page:
    """Reads an exporter's page that is there already: what is left is taking it apart."""

    period_min_s = 1.0

    def __init__(self) -> None:
        self._body = dcgm_page()

    def read(self, at_s: float) -> Sequence[Any]:
        return dcgm_samples(self._body, at_s=at_s)

    def close(self) -> None:
        """Nothing is held."""


def sampled(source: TelemetrySource[Any], seconds: float) -> tuple[SamplerStatus, float]:
    """How sampling went, and CPU time of this process meanwhile, of one core."""
    sampler: TelemetrySampler[Any] = TelemetrySampler(source, name="bench", period_s=PERIOD_S)
    began_s, cpu_s = time.monotonic(), time.process_time()
    sampler.start()
    time.sleep(seconds)
    status = sampler.stop()
    return status, (time.process_time() - cpu_s) / (time.monotonic() - began_s)


def costs(directory: Path, seconds: float, output: Output) -> tuple[dict[str, float], list[str]]:
    """Figures of sampling alone, and what went wrong."""
    played = PlayedNvml(directory)
    rows = []
    figures: dict[str, float] = {}
    failures: list[str] = []
    sources: list[tuple[str, float, Callable[[], TelemetrySource[Any]]]] = [
        (f"NVML, {GPUS} GPUs, {us:g} us a call", us, lambda: NvmlTelemetry(load=played.load))
        for us in CALLS_US
    ]
    sources.append((f"DCGM, a page of {GPUS} GPUs", 0.0, _Page))
    own = {"engine": [os.getpid()]}
    sources.append(("host and a process", 0.0, lambda: HostTelemetry(lambda: own, as_gpu=True)))
    for name, call_us, make in sources:
        played.cost(call_us)
        status, process_ratio = sampled(make(), seconds)
        rows.append((name, status.period_s * 1e3, status.looks, status.cpu_ratio, process_ratio))
        if status.failed or not status.looks:
            failures.append(f"{name}: {status}")
    output.table("Sampling", ("source", "period ms", "looks", "of a core", "process"), rows)
    figures["cpu_ratio_max"] = max(row[3] for row in rows)
    figures["process_cpu_ratio_max"] = max(row[4] for row in rows)
    for us, row in zip(CALLS_US, rows, strict=False):
        figures[f"cpu_ratio_at_{us:g}_us"] = round(row[3], 5)
        figures[f"period_ms_at_{us:g}_us"] = round(row[1], 1)
    figures["dcgm_cpu_ratio"] = round(rows[-2][3], 5)
    figures["host_cpu_ratio"] = round(rows[-1][3], 5)
    figures["host_period_ms"] = round(rows[-1][1], 1)
    return figures, failures


def beside(directory: Path, pairs: int, output: Output) -> SlotRun:
    """Paced streams through a gateway, in turns without and with its telemetry."""
    played = PlayedNvml(directory / "driver")
    with (
        pinned(LOAD_CORE),
        EngineUpstream(directory, core=LOAD_CORE) as engine,
        MileageStack(
            Upstreams(engine.port, engine.port),
            directory / "mileage",
            core=GATEWAY_CORE,
            nvml=True,
            env=played.environment(BESIDE_US),
        ) as mileage,
    ):
        output.say(f"telemetry beside a gateway: {2 * pairs} slots of {SLOT_S:g} s")
        time.sleep(BEGIN_S)
        tree = mileage.service.tree()
        samplers = [p.pid for p in tree if CHILD_MODULE in p.cmdline()]
        if len(samplers) != 1:
            raise NotReadyError(f"no process of telemetry:\n{mileage.log_tail()}")

        def switch(on: bool) -> None:
            os.kill(samplers[0], signal.SIGCONT if on else signal.SIGSTOP)

        try:
            return paced_slots(
                mileage,
                switch,
                gateway=[p.pid for p in tree if p.pid not in samplers],
                switched=samplers,
                pairs=pairs,
                slot_s=SLOT_S,
            )
        finally:
            switch(True)


def effect(run: SlotRun) -> tuple[dict[str, float], list[str]]:
    """Figures of telemetry's effect, and why they may say nothing."""
    slots = run.slots
    without, with_it = ([s for s in slots if s.on is on] for on in (False, True))
    cpu = compared(slots, lambda slot: slot.cpu_us)
    p50 = compared(slots, lambda slot: slot.p50_ms)
    p99 = compared(slots, lambda slot: slot.p99_ms)
    figures = {
        "beside_cpu_ratio": round(median(s.switched_ratio for s in with_it), 4),
        "gateway_cpu_us_per_event": round(median(s.cpu_us for s in without), 2),
        "gateway_cpu_per_event_ratio": round(cpu.ratio, 4),
        "gateway_cpu_per_event_ratio_low": round(cpu.low, 4),
        "gateway_cpu_per_event_ratio_high": round(cpu.high, 4),
        "gateway_delay_p50_ms": round(median(s.p50_ms for s in without), 4),
        "gateway_delay_p50_ratio": round(p50.ratio, 4),
        "gateway_delay_p99_ms": round(median(s.p99_ms for s in without), 4),
        "gateway_delay_p99_ratio": round(p99.ratio, 4),
    }
    doubts = []
    if cpu.low < RATIO_MAX <= cpu.high:
        doubts.append(f"slots differ too much: the ratio is from {cpu.low:.3f} to {cpu.high:.3f}")
    return figures, doubts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--seconds", type=float, default=15.0, help="sampling of each source")
    parser.add_argument("--pairs", type=int, default=40, help="of slots, with and without")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    try:
        with scratch_directory() as directory:
            with pinned(GATEWAY_CORE):
                figures, failures = costs(directory, arguments.seconds, output)
            (directory / "driver").mkdir()
            run = beside(directory, arguments.pairs, output)
    except (NotReadyError, OSError, subprocess.CalledProcessError) as error:
        return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    more, doubts = effect(run)
    figures |= more
    if run.errors:
        failures.append(f"streams went wrong: {run.first_error}")
    doubts += disturbances([run.use])
    output.table("Figures", ("figure", "value"), list(figures.items()))
    judged = verdict(figures, BARS, failures=failures, doubts=doubts)
    return output.finish({**figures, "machine": describe()}, judged)


if __name__ == "__main__":
    sys.exit(main())
