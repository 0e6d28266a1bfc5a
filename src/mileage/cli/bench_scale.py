"""`mileage bench scale`: what each further replica brings, and which resource they share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import typer
import uvloop

from mileage.cli.bench_admin import admin_token
from mileage.cli.bench_document import encoded
from mileage.cli.bench_repeats import run_orders
from mileage.cli.bench_scale_arguments import Balance, ScaleArguments
from mileage.cli.bench_scale_document import scale_document, scale_exit_code
from mileage.cli.bench_scale_fleet import Fleet, GatewayFleet, LaunchedFleet, UrlFleet
from mileage.cli.bench_scale_html import write_scale
from mileage.cli.bench_scale_run import run_scale
from mileage.cli.bench_scale_tables import scale_lines, show_scale
from mileage.cli.bench_setup import run_options, targets_of
from mileage.cli.bench_sweep_points import number_list
from mileage.cli.bench_target import bearer_of, url_of
from mileage.cli.html_report import check_report
from mileage.cli.simulate_arguments import taking
from mileage.cli.usage import show_usage
from mileage.core.errors import ConfigError
from mileage.loadgen.launched_server import words_of
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["numbers_of", "register_scale"]


def register_scale(group: typer.Typer) -> None:
    """Register `scale` with the group."""
    group.command(name="scale")(scale)


@taking(ScaleArguments)
def scale(context: typer.Context, arguments: ScaleArguments) -> None:
    """Measure 1, 2, ... replicas: the knee, what is not linear, and the resource that is shared.

    Each number gets so many times the load of one replica, dealt in turns (--balance). Exits with
    3 where the load generator was the limit, with 1 where replicas failed.

    Example: mileage bench scale http://10.0.0.1:8000 http://10.0.0.2:8000 --concurrency 32

    Or servers that it starts: --launch 'vllm serve M --port {port}' --replicas 4; or those of a
    gateway: --gateway http://127.0.0.1:8080
    """
    if not arguments.urls and arguments.launch is None and arguments.gateway is None:
        show_usage(context, "URL", as_json=arguments.as_json)
    check_report(arguments.report)
    with tempfile.TemporaryDirectory(prefix="mileage-scale-") as directory:
        code = _run(arguments, Path(directory))
    if code:
        raise typer.Exit(code)


def _run(arguments: ScaleArguments, directory: Path) -> int:
    urls = [url_of(url) for url in arguments.urls or ()]
    gateway = None if arguments.gateway is None else url_of(arguments.gateway, "--gateway")
    fleet = _fleet(arguments, urls, gateway, directory)
    first = gateway or (urls[0] if urls else "http://127.0.0.1")
    authorization = bearer_of(arguments.api_key_env, arguments.api_key_file, first)
    run_options(arguments, is_trace=arguments.trace is not None)  # tells what is wrong, first
    slo, _ = targets_of(arguments)
    runs = uvloop.run(
        run_scale(
            arguments,
            fleet,
            numbers_of(arguments),
            gateway=gateway,
            authorization=authorization,
            slo=slo,
            say=lambda text: typer.echo(text, err=True),
        )
    )
    document = scale_document(
        runs, is_open=arguments.concurrency is None, repeats=arguments.repeats
    )
    code = scale_exit_code(document)
    if arguments.report is not None and not runs.interrupted:
        write_scale(arguments.report, document)
    if arguments.as_json:
        typer.echo(encoded(document))
        if code:
            typer.echo(f"mileage: {scale_lines(document)[0]}", err=True)
    else:
        show_scale(document)
    return code


def _fleet(
    arguments: ScaleArguments, urls: Sequence[str], gateway: str | None, directory: Path
) -> Fleet:
    """The replicas, of one of three kinds. Raises ConfigError."""
    given = [
        name
        for name, value in (("URL", urls), ("--launch", arguments.launch), ("--gateway", gateway))
        if value
    ]
    if len(given) > 1:
        raise ConfigError(given[1], arguments.launch or gateway, f"nothing beside {given[0]}")
    if arguments.replicas is not None and arguments.launch is None:
        raise ConfigError("--replicas", arguments.replicas, "--launch; --numbers chooses of others")
    if arguments.balance not in get_args(Balance):
        raise ConfigError("--balance", arguments.balance, " or ".join(get_args(Balance)))
    if gateway is not None and arguments.balance != "turns":
        raise ConfigError("--balance", arguments.balance, "no --gateway, which chooses by itself")
    timeout_s = seconds_of("--ready-timeout", arguments.ready_timeout)
    if arguments.launch is not None:
        count = arguments.replicas
        if count is None:
            raise ConfigError("--replicas", None, "how many servers --launch starts at most")
        try:
            words_of(arguments.launch, {"port": "1", "index": "0"})
        except ConfigError as error:
            raise error.named("--launch") from None
        return LaunchedFleet(arguments.launch, count, directory=directory, timeout_s=timeout_s)
    if gateway is not None:
        token = admin_token(arguments.admin_token_env, arguments.admin_token_file)
        return GatewayFleet(gateway, arguments.admin_url, token, timeout_s=timeout_s)
    if len(set(urls)) < len(urls):
        raise ConfigError("URL", ", ".join(urls), "each replica once")
    return UrlFleet(urls)


def numbers_of(arguments: ScaleArguments) -> Callable[[int], Sequence[int]]:
    """The order of the runs, once it is known how many replicas there are. Raises ConfigError."""
    asked = None
    if arguments.numbers is not None:
        asked = sorted(number_list("--numbers", arguments.numbers, int))

    def order(count: int) -> Sequence[int]:
        numbers = asked or list(range(1, count + 1))
        if numbers[-1] > count:
            raise ConfigError("--numbers", arguments.numbers, f"at most {count}, the replicas")
        if len(numbers) < 2:
            raise ConfigError("--numbers", arguments.numbers, "two numbers of replicas at least")
        passes = run_orders([range(len(numbers))], arguments.repeats, arguments.seed)
        return [numbers[index] for order in passes for index in order]

    return order
