"""measure(): one run against a prepared endpoint, with all that is looked at beside it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mileage import __version__
from mileage.cli.bench_means import engine_totals, own_means
from mileage.cli.bench_prepare import Prepared
from mileage.cli.bench_progress import LiveLine
from mileage.cli.bench_result import BenchRun
from mileage.cli.bench_setup import calls_of
from mileage.core.slo import Slo
from mileage.loadgen.plan_options import PlanTally
from mileage.loadgen.run import LoadRun, run_load
from mileage.loadgen.run_options import RunOptions
from mileage.measure.server_use import UseSeries
from mileage.scrape.server_use import ServerUseMeter, UseOptions

__all__ = ["Beside", "measure", "stopped_by_signals"]

_PROBE_S: Final = 10.0


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at beside the load, and what the result is judged and priced by."""

    slo: Slo = Slo()
    use: UseOptions | None = None
    """None: nobody looks at the server."""
    metrics_url: str | None = None
    """The engine's page; None: there is none, or it is not asked."""
    usd_per_gpu_hour: float | None = None
    gpus: int = 1


async def measure(
    prepared: Prepared, options: RunOptions, beside: Beside, *, live: bool = True
) -> BenchRun:
    """Put the load on the endpoint. An endpoint in doubt gets one request first, and no more where
    that fails. Ctrl-C ends the run, and the result is what was seen up to there."""
    if prepared.doubt is not None:
        probe = await _probe(prepared, options)
        if all(record.outcome != "ok" for record in probe.records):
            return BenchRun(
                load=probe,
                slo=beside.slo,
                conditions=_conditions(prepared, options),
                error=prepared.doubt,
            )
    tally = PlanTally()
    calls = calls_of(prepared.workload, prepared.plan, options.warmup_s, tally)
    line = LiveLine(warmup_s=options.warmup_s, planned_s=_planned_s(options)) if live else None
    before = await engine_totals(beside.metrics_url)
    meter = None if beside.use is None else ServerUseMeter(beside.use)
    if meter is not None:
        await meter.start()
    stop = asyncio.Event()
    try:
        with stopped_by_signals(stop), _shown(line):
            on_record = None if line is None else line.seen
            load = await run_load(calls, [prepared.target], options, on_record=on_record, stop=stop)
    finally:
        if meter is not None:
            await meter.stop()
    use = None
    if meter is not None and load.end_s > load.start_s:
        zero_s = load.zero_monotonic_s
        use = meter.between(zero_s + load.start_s, zero_s + load.end_s)
    return BenchRun(
        load=load,
        slo=beside.slo,
        conditions=_conditions(prepared, options),
        use=use,
        use_series=UseSeries() if meter is None else meter.series(),
        engine_means=await own_means(before, load.records, beside.metrics_url),
        usd_per_gpu_hour=beside.usd_per_gpu_hour,
        gpus=beside.gpus,
        plan=_told(tally),
        interrupted=load.stopped,
    )


async def _probe(prepared: Prepared, options: RunOptions) -> LoadRun:
    """The plan's first request alone."""
    call = next(calls_of(prepared.workload, prepared.plan, 0.0, PlanTally()))
    alone = RunOptions(
        drain_s=_PROBE_S,
        connect_timeout_s=min(options.connect_timeout_s, _PROBE_S),
        response_timeout_s=_PROBE_S,
    )
    return await run_load([replace(call, scheduled_s=0.0)], [prepared.target], alone)


def _planned_s(options: RunOptions) -> float | None:
    return None if options.duration_s is None else options.warmup_s + options.duration_s


@contextlib.contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run; a second one ends the process."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    try:
        for number in numbers:
            loop.add_signal_handler(number, end)
    except (RuntimeError, ValueError):  # not in the main thread: its owner stops us
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _shown(line: LiveLine | None) -> Iterator[None]:
    if line is None:
        yield
        return
    line.start()
    try:
        yield
    finally:
        line.stop()


def _told(tally: PlanTally) -> dict[str, Any]:
    """What could not be made as it was planned, the calls among it that never came due."""
    return {
        "prompts_too_short": tally.too_short,
        "prompts_clipped": tally.clipped,
        "media_as_text": tally.media_as_text,
        "tenants_without_key": list(tally.tenants_without_key),
    }


def _conditions(prepared: Prepared, options: RunOptions) -> dict[str, Any]:
    """What the run was on and with; holds no key."""
    plan = prepared.plan
    return {
        **prepared.facts,
        "workload": {"name": prepared.workload.name, **prepared.workload.facts},
        "load": msgspec.to_builtins(options),
        "requests": {
            "endpoint": plan.endpoint,
            "stream": plan.stream,
            "ignore_eos": plan.ignore_eos,
            "keep_models": plan.keep_models,
            "cancel_ratio": plan.cancel_ratio,
            "fields": plan.fields,
            "headers": sorted(name.decode() for name, _ in plan.headers),
            "tenants_with_keys": sorted(plan.tenant_keys),
            "seed": plan.seed,
        },
        "version": __version__,
    }
