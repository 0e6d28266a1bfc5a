"""`mileage bench tail`: where the latency of the slowest requests comes from."""

from __future__ import annotations

from typing import Final

import typer
import uvloop
from rich.console import Console

from mileage.cli.bench_document import encoded
from mileage.cli.bench_measure import Beside
from mileage.cli.bench_prepare import prepare
from mileage.cli.bench_result import BenchRun, exit_code
from mileage.cli.bench_setup import run_options, targets_of
from mileage.cli.bench_tail_arguments import TailArguments
from mileage.cli.bench_tail_document import tail_document
from mileage.cli.bench_tail_html import write_tail_report
from mileage.cli.bench_tail_look import TailLook
from mileage.cli.bench_tail_tables import show_tail
from mileage.cli.bench_tail_watch import Source
from mileage.cli.bench_target import bearer_of, url_of
from mileage.cli.bench_workload import workload_of
from mileage.cli.html_report import check_report
from mileage.cli.simulate_arguments import taking
from mileage.core.errors import ConfigError
from mileage.measure.tail_report import TailOptions, TailReport

__all__ = ["register_tail"]

_NOT_ENOUGH: Final = 3
_LATENCIES: Final = ("e2e", "ttft")


def register_tail(bench: typer.Typer) -> None:
    """Makes it a subcommand of `mileage bench`."""
    bench.command("tail")(tail)


@taking(TailArguments)
def tail(context: typer.Context, arguments: TailArguments) -> None:
    """Run a load, and tell which stage makes the slowest requests slower than typical ones.

    Beside the run it looks at the processes of generator, gateway and engine on this machine:
    waits for a CPU, stops, page faults, garbage collection, the gateway's event loop. Exits with 1
    where no request got an answer, with 3 where there are too few requests, or the generator was
    the limit.

    Example: mileage bench tail http://127.0.0.1:8080 --rate 8 --duration 5m --report tail.html
    """
    code = run_tail(arguments)
    if code:
        raise typer.Exit(code)


def run_tail(arguments: TailArguments) -> int:
    """Run it, and tell the result; returns the exit code. Raises ConfigError, TraceError."""
    url = url_of(arguments.url)
    options = _tail_options(arguments)
    check_report(arguments.report)
    authorization = bearer_of(arguments.api_key_env, arguments.api_key_file, url)
    slo, config = targets_of(arguments)
    offered = run_options(arguments, is_trace=arguments.trace is not None)
    workload = workload_of(arguments, Console(stderr=True, highlight=False))

    look = TailLook(arguments, url, config)

    async def measured() -> BenchRun:
        prepared = await prepare(arguments, url, workload, authorization=authorization)
        return await look.measured(prepared, offered, Beside(slo=slo))

    run = uvloop.run(measured())
    found = look.found(run, options)
    return _tell(arguments, run, found.report, found.sources)


def _tail_options(arguments: TailArguments) -> TailOptions:
    """Raises ConfigError by option."""
    if arguments.latency not in _LATENCIES:
        raise ConfigError("--latency", arguments.latency, "e2e or ttft")
    try:
        return TailOptions(
            latency="ttft" if arguments.latency == "ttft" else "e2e",
            share_ratio=arguments.share,
            requests_min=arguments.requests_min,
            waterfalls=arguments.waterfalls,
        )
    except ConfigError as error:
        raise error.named("--share" if error.key == "share_ratio" else error.key) from None


def _tell(
    arguments: TailArguments, run: BenchRun, report: TailReport | None, sources: list[Source]
) -> int:
    if arguments.as_json:
        typer.echo(encoded(tail_document(run, report, sources)))
    if report is None:
        why = run.why_ended or "no request ended well"
        typer.echo(f"mileage: {why}", err=True)
        return 1
    if not arguments.as_json:
        show_tail(report, sources)
    if arguments.report is not None:
        write_tail_report(arguments.report, run, report, sources)
    code = exit_code(run, run.figures())
    if run.load.generator.limited:
        typer.echo(
            f"mileage: the load generator was the limit: {run.load.generator.reason}", err=True
        )
    if code == 0 and report.verdict.startswith("not enough"):
        return _NOT_ENOUGH
    return code
