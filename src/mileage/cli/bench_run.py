"""run_bench(): one run against one endpoint, from its options to its exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
import uvloop
from rich.console import Console

from mileage.cli.bench_document import bench_document, encoded
from mileage.cli.bench_html import write_report
from mileage.cli.bench_lines import verdict_line
from mileage.cli.bench_measure import Beside, measure
from mileage.cli.bench_prepare import prepare
from mileage.cli.bench_result import BenchRun, exit_code
from mileage.cli.bench_run_arguments import BenchArguments
from mileage.cli.bench_save import check_files, save_csv, save_parquet, save_run
from mileage.cli.bench_setup import price_of, run_options, targets_of
from mileage.cli.bench_tables import show_bench
from mileage.cli.bench_tail_document import tail_part
from mileage.cli.bench_tail_look import TailFound, TailLook
from mileage.cli.bench_tail_tables import show_tail
from mileage.cli.bench_target import bearer_of, url_of
from mileage.cli.bench_workload import workload_of
from mileage.cli.html_report import check_report
from mileage.core.errors import ConfigError, MileageError
from mileage.measure.tail_report import TailOptions
from mileage.scrape.server_use import UseOptions
from mileage.wire.url import display_url, origin

__all__ = ["run_bench"]

_NO_METRICS = "none"


def run_bench(arguments: BenchArguments) -> int:
    """Run it, and tell the result; returns the exit code. Raises ConfigError, TraceError."""
    assert arguments.url is not None
    url = url_of(arguments.url)
    _check_pages(arguments)
    _check_tail(arguments)
    check_report(arguments.report)
    check_files(save=arguments.save, csv=arguments.csv, parquet=arguments.parquet)
    authorization = bearer_of(arguments.api_key_env, arguments.api_key_file, url)
    slo, config = targets_of(arguments)
    usd_per_gpu_hour = price_of(arguments, config)
    options = run_options(arguments, is_trace=arguments.trace is not None)
    workload = workload_of(arguments, Console(stderr=True, highlight=False))
    metrics_url = arguments.metrics_url or f"{url}/metrics"
    seen = metrics_url != _NO_METRICS
    beside = Beside(
        slo=slo,
        use=UseOptions(
            url=url,
            authorization=authorization,
            engine_urls=tuple(arguments.engine_url or ()),
            metrics_urls=(metrics_url,) if arguments.metrics_url and seen else (),
            dcgm_url=arguments.dcgm_url,
            gpu_ids=None if arguments.gpu_id is None else tuple(arguments.gpu_id),
        ),
        metrics_url=metrics_url if seen else None,
        usd_per_gpu_hour=usd_per_gpu_hour,
        gpus=arguments.gpus,
    )
    look = TailLook(arguments, url, config) if arguments.tail else None

    async def measured() -> BenchRun:
        prepared = await prepare(arguments, url, workload, authorization=authorization)
        if look is None:
            return await measure(prepared, options, beside)
        return await look.measured(prepared, options, beside)

    run = uvloop.run(measured())
    return _tell(arguments, run, None if look is None else look.found(run, TailOptions()))


def _check_pages(arguments: BenchArguments) -> None:
    """Raises ConfigError for a page that could not be asked: silence would look like no page."""
    metrics_url = arguments.metrics_url
    pages = [("--metrics-url", None if metrics_url == _NO_METRICS else metrics_url)]
    pages.append(("--dcgm-url", arguments.dcgm_url))
    pages += [("--engine-url", url) for url in arguments.engine_url or ()]
    for key, url in pages:
        try:
            if url is not None:
                origin(url)
        except ValueError as error:
            raise ConfigError(key, display_url(url or ""), f"http://HOST:PORT ({error})") from None


def _check_tail(arguments: BenchArguments) -> None:
    """Raises ConfigError for what is told about a look that nobody takes."""
    if arguments.tail:
        return
    for name in ("ledger", "admin_url", "admin_token_env", "admin_token_file", "no_host", "ebpf"):
        value = getattr(arguments, name)
        if value:
            raise ConfigError(f"--{name.replace('_', '-')}", str(value), "--tail beside it")


def _tell(arguments: BenchArguments, run: BenchRun, tail: TailFound | None) -> int:
    figures = run.figures()
    document = bench_document(run, figures)
    if tail is not None:
        document |= tail_part(tail.report, tail.sources)
    code = exit_code(run, figures)
    if arguments.as_json:
        typer.echo(encoded(document))
    else:
        show_bench(document)
        _show_tail(tail)
    if code and arguments.as_json:
        typer.echo(f"mileage: {verdict_line(document)}", err=True)
    _write_files(arguments, run, document)
    return code


def _show_tail(tail: TailFound | None) -> None:
    if tail is None:
        return
    typer.echo()
    if tail.report is None:
        typer.echo("No request ended well: there is no tail")
    else:
        show_tail(tail.report, tail.sources)


def _write_files(arguments: BenchArguments, run: BenchRun, document: dict[str, Any]) -> None:
    """Write all that were asked for; what is wrong with one keeps no other from being written."""
    records = run.load.records
    files: list[tuple[Path | None, Callable[[Path], None]]] = [
        (arguments.save, lambda path: save_run(path, run, document)),
        (arguments.csv, lambda path: save_csv(path, records)),
        (arguments.parquet, lambda path: save_parquet(path, records)),
        (arguments.report, lambda path: write_report(path, run, document)),
    ]
    wrong: MileageError | None = None
    for path, write in files:
        if path is None:
            continue
        try:
            write(path)
        except MileageError as error:
            if wrong is not None:
                typer.echo(f"mileage: {error}", err=True)
            wrong = wrong or error
            continue
        typer.echo(f"wrote {path}", err=True)
    if wrong is not None:
        raise wrong
