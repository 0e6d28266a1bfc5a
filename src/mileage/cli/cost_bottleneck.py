"""`mileage cost bottleneck`: what holds the GPUs up, by dimension, with its evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import typer
from msgspec.structs import replace
from rich.console import Console

from mileage.cli.bench_document import encoded
from mileage.cli.bench_target import url_of
from mileage.cli.config import load_config
from mileage.cli.cost_bottleneck_arguments import BottleneckArguments
from mileage.cli.cost_bottleneck_document import bottleneck_document
from mileage.cli.cost_bottleneck_tables import show_bottleneck
from mileage.cli.cost_bottleneck_watch import WatchPlan, watch
from mileage.cli.simulate_arguments import taking
from mileage.cli.whole_file import check_place, whole_file
from mileage.core.errors import ConfigError
from mileage.measure.bottleneck import bottleneck as judge
from mileage.measure.gpu_sample import GpuSample
from mileage.measure.serving_host import HostMoment, LoadMoment
from mileage.measure.telemetry import Telemetry
from mileage.scrape.telemetry_file import read_telemetry, telemetry_lines
from mileage.scrape.telemetry_sampler import SamplerStatus
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["register_bottleneck"]

_URL: Final = "http://127.0.0.1:8080"
_CODES: Final = {"none": 0, "bound": 1, "not_enough_evidence": 3}
_FILE_BYTES_MAX: Final = 512 * 1024 * 1024
_LIVE_S: Final = 0.1
_PAGES_S: Final = 1.0
_PERIODS_S: Final = (0.01, 60.0)
_DURATION_MAX_S: Final = 3600.0


def register_bottleneck(cost: typer.Typer) -> None:
    """Makes it a subcommand of `mileage cost`."""
    cost.command("bottleneck")(bottleneck)


@taking(BottleneckArguments)
def bottleneck(context: typer.Context, arguments: BottleneckArguments) -> None:
    """Tell what holds the GPUs up: compute, memory, interconnect or the host.

    Looks at GPUs by a DCGM exporter or NVML, at the server's processes and its load; on a machine
    without a GPU the processor stands in its place. Exits with 0 where nothing holds them up, with
    1 where something does, with 3 where too little is known.

    Example: mileage cost bottleneck --dcgm http://10.0.0.5:9400/metrics http://10.0.0.5:8000
    """
    config = load_config(arguments.config, {}).bottleneck
    if arguments.save is not None:
        check_place(arguments.save, key="--save")
    states: dict[str, SamplerStatus] = {}
    if arguments.file:
        telemetry = _read(arguments, arguments.file)
    else:
        plan, duration_s = _plan(arguments)
        plan = replace(plan, host_memory_gb_per_s=config.host_memory_gb_per_s)
        with Console(stderr=True).status(f"looking for {duration_s:g} s"):
            telemetry, states = watch(plan, duration_s)
    if arguments.save is not None:
        with whole_file(arguments.save, key="--save") as file:
            file.writelines(telemetry_lines(telemetry))
    result = judge(telemetry, config)
    if arguments.as_json:
        typer.echo(encoded(bottleneck_document(result, telemetry, states)))
    else:
        show_bottleneck(result, states)
    code = _CODES[result.outcome]
    if code:
        raise typer.Exit(code)


def _plan(arguments: BottleneckArguments) -> tuple[WatchPlan, float]:
    """Raises ConfigError by option."""
    duration_s = seconds_of("--for", arguments.duration)
    if not 0.0 < duration_s <= _DURATION_MAX_S:
        raise ConfigError("--for", arguments.duration, "a time up to an hour")
    plan = WatchPlan(
        url=url_of(arguments.url or _URL),
        dcgm_urls=_urls("--dcgm", arguments.dcgm),
        nvml=arguments.nvml,
        gpu_ids=_gpu_ids(arguments),
        engine_urls=_urls("--engine-url", arguments.engine_url),
        metrics_urls=_urls("--metrics", arguments.metrics),
        period_s=_period_s(arguments, _LIVE_S),
    )
    return plan, duration_s


def _period_s(arguments: BottleneckArguments, usual_s: float) -> float:
    if arguments.every is None:
        return usual_s
    period_s = seconds_of("--every", arguments.every)
    least_s, most_s = _PERIODS_S
    if not least_s <= period_s <= most_s:
        raise ConfigError("--every", arguments.every, "10ms to 60s")
    return period_s


def _gpu_ids(arguments: BottleneckArguments) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in (arguments.gpus or "").split(","))))


def _urls(key: str, urls: list[str] | None) -> tuple[str, ...]:
    """Raises ConfigError for one that is none."""
    for url in urls or ():
        url_of(url, key)
    return tuple(urls or ())


def _read(arguments: BottleneckArguments, files: list[Path]) -> Telemetry:
    """All files, one after another in time. Raises ConfigError, TraceError."""
    period_s = _period_s(arguments, _PAGES_S)
    samples: list[GpuSample] = []
    hosts: list[HostMoment] = []
    loads: list[LoadMoment] = []
    missing: dict[str, str] = {}
    begin_s = 0.0
    for path in files:
        found = read_telemetry(
            _bytes(path), path=str(path), gpu_ids=_gpu_ids(arguments), period_s=period_s
        )
        times = [sample.at_s for sample in found.samples]
        times += [host.at_s for host in found.hosts]
        times += [load.at_s for load in found.loads]
        by_s = begin_s - min(times, default=0.0)
        samples += (replace(each, at_s=each.at_s + by_s) for each in found.samples)
        hosts += (replace(each, at_s=each.at_s + by_s) for each in found.hosts)
        loads += (replace(each, at_s=each.at_s + by_s) for each in found.loads)
        begin_s = max(times, default=0.0) + by_s + period_s
        missing |= found.missing
    return Telemetry(
        samples=tuple(samples), hosts=tuple(hosts), loads=tuple(loads), missing=missing
    )


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise ConfigError("--file", str(path), f"at most {_FILE_BYTES_MAX >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError("--file", str(path), f"a file ({error.strerror})") from None
