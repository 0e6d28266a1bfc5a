"""`mileage bench`: real load on an endpoint, and what became of every request."""

from __future__ import annotations

import typer

from mileage.cli.bench_ab import register_ab
from mileage.cli.bench_diff import register_diff
from mileage.cli.bench_group import BenchGroup
from mileage.cli.bench_run import run_bench
from mileage.cli.bench_run_arguments import BenchArguments
from mileage.cli.bench_scale import register_scale
from mileage.cli.bench_sweep import register_sweep
from mileage.cli.bench_tail import register_tail
from mileage.cli.simulate_arguments import taking
from mileage.cli.usage import show_usage

__all__ = ["bench"]

bench = typer.Typer(cls=BenchGroup, rich_markup_mode=None)
register_ab(bench)
register_tail(bench)
register_scale(bench)
register_sweep(bench)
register_diff(bench)


@bench.callback(invoke_without_command=True)
@taking(BenchArguments)
def run(context: typer.Context, arguments: BenchArguments) -> None:
    """Send real load to an endpoint, and tell the latencies, failures and cost that it meets.

    The load is open: requests are sent on their schedule, however late the answers are, and
    latencies count from the schedule. Exits with 1 where no request got an answer, with 3 where the
    load generator and not the endpoint was the limit.

    Example: mileage bench http://127.0.0.1:8000 --model llama-3.1-8b --rate 8 --duration 60s
    --slo ttft=2s,itl=60ms
    """
    if arguments.url is None:
        show_usage(context, "URL", as_json=arguments.as_json)
    code = run_bench(arguments)
    if code:
        raise typer.Exit(code)
