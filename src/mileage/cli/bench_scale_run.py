"""run_scale(): every number of replicas under its load, with the machine looked at beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from rich.console import Console

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_document import bench_document
from mileage.cli.bench_measure import stopped_by_signals
from mileage.cli.bench_prepare import Prepared, prepare
from mileage.cli.bench_result import BenchRun
from mileage.cli.bench_scale_arguments import ScaleArguments
from mileage.cli.bench_scale_fleet import Fleet
from mileage.cli.bench_setup import calls_of, run_options
from mileage.cli.bench_sweep_points import load_of
from mileage.cli.bench_workload import workload_of
from mileage.core.errors import EngineError
from mileage.core.slo import Slo
from mileage.loadgen.plan_options import PlanTally
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run import run_load
from mileage.loadgen.target import Target
from mileage.measure.machine_use import MachineSample, machine_use
from mileage.measure.shared_resource import ReplicaEvidence
from mileage.scrape.machine_meter import MachineMeter
from mileage.scrape.server_use_gpu import gpus_of
from mileage.scrape.server_use_process import find_server

__all__ = ["ScaleRun", "ScaleRuns", "dealt_to", "run_scale"]

_SEED_STEP: Final = 7919


class ScaleRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run with so many replicas."""

    replicas: int
    document: dict[str, Any]
    """As `mileage bench --json` prints it."""
    evidence: ReplicaEvidence


class ScaleRuns(msgspec.Struct, kw_only=True):
    """All runs, in the order in which they were made."""

    runs: list[ScaleRun] = []
    interrupted: bool = False
    restored: str | None = None
    """Why the fleet could not be put back; None: it was."""


class _Seen(msgspec.Struct):
    """Processes of a number of replicas."""

    groups: dict[str, list[int]]
    gpu_sharers: dict[str, int]
    local: bool


async def run_scale(
    arguments: ScaleArguments,
    fleet: Fleet,
    numbers: Callable[[int], Sequence[int]],
    *,
    gateway: str | None,
    authorization: str | None,
    slo: Slo,
    say: Callable[[str], None],
) -> ScaleRuns:
    """`numbers` gives the numbers of replicas in the order of their runs, from how many there are.

    Raises EngineError for a replica that does not answer, ConfigError for options that cannot be.
    """
    found = ScaleRuns()
    try:
        order = numbers(await fleet.start())
        for number, count in enumerate(order):
            say(f"{number + 1} of {len(order)}: {count} replica{'s' * (count > 1)}")
            urls = await fleet.use(count)
            load = _scaled(arguments, count, seed=arguments.seed + _SEED_STEP * (number + 1))
            workload = workload_of(load, Console(stderr=True, highlight=False, quiet=True))
            prepared = await prepare(load, urls[0], workload, authorization=authorization)
            if prepared.doubt is not None:
                shown = prepared.endpoint.shown
                raise EngineError(shown, prepared.doubt.removeprefix(f"{shown}: "))
            seen = await asyncio.to_thread(_look, fleet.engines(count), gateway)
            done = await _measured(
                load, prepared, urls, authorization, slo, count, seen, arguments.balance
            )
            if done is None:
                found.interrupted = True
                break
            found.runs.append(done)
    finally:
        try:
            await fleet.end()
        except EngineError as error:
            found.restored = str(error)
    return found


def dealt_to(targets: int, calls: Iterable[PlannedCall], balance: str) -> Iterator[PlannedCall]:
    """The calls, each to the target after that of the one before, or to the least busy one."""
    for call in calls:
        target = None if balance == "least" else call.index % targets
        yield replace(call, target=target) if targets > 1 else call


def _scaled(arguments: ScaleArguments, count: int, *, seed: int) -> LoadArguments:
    """The load of one replica for `count` of them."""
    changes: dict[str, Any] = {"seed": seed}
    if arguments.concurrency is not None:
        changes["concurrency"] = arguments.concurrency * count
    if arguments.rate is not None:
        changes["rate"] = arguments.rate * count
    if arguments.trace is not None and arguments.concurrency is None:
        changes["rate_scale"] = arguments.rate_scale * count
    return load_of(arguments, **changes)


async def _measured(
    load: LoadArguments,
    prepared: Prepared,
    urls: Sequence[str],
    authorization: str | None,
    slo: Slo,
    count: int,
    seen: _Seen,
    balance: str,
) -> ScaleRun | None:
    """One run; None where it was interrupted."""
    options = run_options(load, is_trace=load.trace is not None)
    targets = [Target(url=url, authorization=authorization) for url in urls]
    calls = calls_of(prepared.workload, prepared.plan, options.warmup_s, PlanTally())
    meter, stop = MachineMeter(seen.groups), asyncio.Event()
    meter.start()
    samples: list[MachineSample] = []
    try:
        with stopped_by_signals(stop):
            dealt = dealt_to(len(targets), calls, balance)
            done = await run_load(dealt, targets, options, stop=stop)
    finally:
        samples = await asyncio.to_thread(meter.stop)
    if done.stopped:
        return None
    conditions = {
        **prepared.facts,
        "workload": {"name": prepared.workload.name, **prepared.workload.facts},
        "load": msgspec.to_builtins(options),
        "targets": [target.shown for target in targets],
        "balance": balance if len(targets) > 1 else None,
    }
    run = BenchRun(load=done, slo=slo, conditions=conditions)
    figures = run.figures()
    zero_s = done.zero_monotonic_s
    use = machine_use(samples, start_s=zero_s + done.start_s, end_s=zero_s + done.end_s)
    replicas = use.groups.get("replicas")
    per_token_s = None
    if replicas is not None and figures.output_tokens_per_s:
        per_token_s = replicas.cores / figures.output_tokens_per_s
    evidence = ReplicaEvidence(
        use=use,
        cpu_s_per_token=per_token_s,
        generator_reason=done.generator.reason if done.generator.limited else None,
        gpu_sharers=seen.gpu_sharers,
        local=seen.local,
    )
    return ScaleRun(replicas=count, document=bench_document(run, figures), evidence=evidence)


def _look(engines: Sequence[str], gateway: str | None) -> _Seen:
    """Which processes of this machine are whose."""
    groups: dict[str, list[int]] = {"generator": [os.getpid()]}
    sharers: dict[str, int] = {}
    local = bool(engines)
    replicas: list[int] = []
    for url in engines:
        try:
            pids = [process.pid for process in find_server(url).engine]
        except EngineError:
            local = False
            continue
        replicas += pids
        for gpu in gpus_of(pids):
            sharers[gpu] = sharers.get(gpu, 0) + 1
    if replicas:
        groups["replicas"] = sorted(set(replicas))
    if gateway is not None:
        try:
            found = find_server(gateway, engines)
        except EngineError:
            local = False
        else:
            groups["gateway"] = [process.pid for process in found.gateway]
            if not engines:  # embedded ones, which have no address
                groups["replicas"] = [process.pid for process in found.engine]
                local = bool(found.engine)
    return _Seen(groups={k: v for k, v in groups.items() if v}, gpu_sharers=sharers, local=local)
