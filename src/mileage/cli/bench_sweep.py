"""`mileage bench sweep`: what TTFT, ITL, throughput and cost an endpoint trades for each other."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer
import uvloop

from mileage.cli.bench_admin import admin_token
from mileage.cli.bench_document import encoded
from mileage.cli.bench_measure import Beside
from mileage.cli.bench_repeats import run_orders
from mileage.cli.bench_setup import price_of, run_options, targets_of
from mileage.cli.bench_sweep_arguments import SweepArguments
from mileage.cli.bench_sweep_document import QUANTILES, sweep_document, sweep_exit_code
from mileage.cli.bench_sweep_html import write_sweep
from mileage.cli.bench_sweep_points import (
    groups_of,
    load_of,
    points_of,
    text_list,
)
from mileage.cli.bench_sweep_run import run_sweep
from mileage.cli.bench_sweep_settings import (
    CommandSettings,
    ControlSettings,
    LaunchSettings,
    Settings,
    Unchanged,
    settings_of,
)
from mileage.cli.bench_sweep_tables import pick_lines, show_sweep
from mileage.cli.bench_target import bearer_of, url_of
from mileage.cli.html_report import check_report
from mileage.cli.simulate_arguments import taking
from mileage.cli.usage import show_usage
from mileage.core.errors import ConfigError
from mileage.loadgen.launched_server import words_of
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["register_sweep"]

_LEASE_SPARE_S = 600.0
_LEASE_MAX_S = 86_400.0
"""What a gateway grants at most; each change of the setting begins a lease of its own."""


def register_sweep(group: typer.Typer) -> None:
    """Register `sweep` with the group."""
    group.command(name="sweep")(sweep)


@taking(SweepArguments)
def sweep(context: typer.Context, arguments: SweepArguments) -> None:
    """Measure several loads, or settings, and find those that no other beats in everything.

    Runs go in passes over all points, so that what drifts meets each alike. Exits with 3 where the
    load generator was the limit at every point, with 1 where no point was answered well.

    Example: mileage bench sweep http://127.0.0.1:8000 --concurrency 1,2,4,8,16 --duration 20s

    With settings: --set governor.policy=static,model, --command './restart.sh {value}' --values
    512,2048, or in place of a URL --launch 'vllm serve M --port {port} --max-num-seqs {value}'
    """
    if arguments.url is None and arguments.launch is None:
        show_usage(context, "URL", as_json=arguments.as_json)
    if arguments.quantile not in QUANTILES:
        raise ConfigError("--quantile", arguments.quantile, f"one of {', '.join(QUANTILES)}")
    check_report(arguments.report)
    with tempfile.TemporaryDirectory(prefix="mileage-sweep-") as directory:
        code = _run(arguments, Path(directory))
    if code:
        raise typer.Exit(code)


def _run(arguments: SweepArguments, directory: Path) -> int:
    documents = settings_of(arguments.set or ())
    values = list(documents) or _values(arguments)
    points = points_of(
        concurrency=arguments.concurrency,
        rate=arguments.rate,
        rate_scale=arguments.rate_scale,
        values=values,
    )
    url = None if arguments.url is None else url_of(arguments.url)
    authorization = bearer_of(arguments.api_key_env, arguments.api_key_file, url or "http://h")
    settings = _settings(arguments, url, authorization, documents, len(points), directory)
    plain = load_of(arguments, concurrency=None, rate=None, rate_scale=1.0)
    slo, config = targets_of(plain)
    beside = Beside(slo=slo, usd_per_gpu_hour=price_of(plain, config), gpus=arguments.gpus)
    runs = uvloop.run(
        run_sweep(
            arguments,
            points,
            run_orders(groups_of(points), arguments.repeats, arguments.seed),
            settings,
            authorization=authorization,
            beside=beside,
            say=lambda text: typer.echo(text, err=True),
        )
    )
    document = sweep_document(points, runs, quantile=arguments.quantile, repeats=arguments.repeats)
    code = sweep_exit_code(document)
    if arguments.report is not None and not runs.interrupted:
        write_sweep(arguments.report, document)
    if arguments.as_json:
        typer.echo(encoded(document))
        if code:
            typer.echo(f"mileage: {pick_lines(document)[0]}", err=True)
    else:
        show_sweep(document)
    return code


def _values(arguments: SweepArguments) -> list[str]:
    if arguments.values is None:
        return []
    if arguments.command is None and arguments.launch is None:
        raise ConfigError("--values", arguments.values, "--command or --launch beside it")
    return text_list("--values", arguments.values)


def _settings(
    arguments: SweepArguments,
    url: str | None,
    authorization: str | None,
    documents: dict[str, dict[str, object]],
    points: int,
    directory: Path,
) -> Settings:
    """What changes the endpoint between points. Raises ConfigError for more than one of them."""
    given = [
        name
        for name, value in (
            ("--set", arguments.set),
            ("--command", arguments.command),
            ("--launch", arguments.launch),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise ConfigError(given[1], getattr(arguments, given[1][2:]), f"nothing beside {given[0]}")
    timeout_s = seconds_of("--ready-timeout", arguments.ready_timeout)
    if arguments.launch is not None:
        if arguments.url is not None:
            raise ConfigError("URL", arguments.url, "none with --launch, which has its own")
        try:
            words_of(arguments.launch, {"port": "1", "value": "1"})
        except ConfigError as error:
            raise error.named("--launch") from None
        return LaunchSettings(arguments.launch, directory=directory, timeout_s=timeout_s)
    assert url is not None
    if documents:
        token = admin_token(arguments.admin_token_env, arguments.admin_token_file)
        lease_s = min(_LEASE_MAX_S, _LEASE_SPARE_S + 2 * points * _run_s(arguments))
        return ControlSettings(url, arguments.admin_url, token, documents, lease_s=lease_s)
    if arguments.command is not None:
        if arguments.values is None or "{value}" not in arguments.command:
            raise ConfigError("--command", arguments.command, "{value} in it, and --values")
        return CommandSettings(
            url, arguments.command, authorization=authorization, timeout_s=timeout_s
        )
    return Unchanged(url)


def _run_s(arguments: SweepArguments) -> float:
    """Seconds of a run at most."""
    load = load_of(
        arguments,
        concurrency=1 if arguments.concurrency is not None else None,
        rate=1.0 if arguments.rate is not None else None,
        rate_scale=1.0,
    )
    options = run_options(load, is_trace=arguments.trace is not None)
    return options.warmup_s + (options.duration_s or 3600.0) + options.drain_s
