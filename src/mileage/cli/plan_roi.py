"""`mileage plan roi`: when another way to serve pays back, and what that hangs on."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mileage.cli.plan_roi_file import RoiFile, read_roi, serving_flags
from mileage.cli.plan_roi_tables import show_roi
from mileage.cli.simulate_arguments import taking
from mileage.cli.usage import show_usage
from mileage.core.errors import ConfigError
from mileage.planner.roi import Roi
from mileage.planner.roi import roi as worked_out

__all__ = ["register_roi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoiArguments:
    """Of `mileage plan roi`."""

    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A TOML file with the tables [business], [baseline] and [candidate]; an option is "
            "taken in place of what it says.",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Today's way to serve, as 'NAME KEY=VALUE ...': usd_per_request, usd_per_month, "
            "accuracy_ratio, review_ratio."
        ),
    ] = None
    candidate: Annotated[
        str | None, typer.Option(help="The way that is thought of, spelled likewise.")
    ] = None
    requests_per_month: Annotated[
        float | None, typer.Option(help="Requests of the first month.")
    ] = None
    growth: Annotated[
        float | None,
        typer.Option(help="Growth of the requests by month: 0.05 is 5 %. [default: 0]"),
    ] = None
    one_time: Annotated[
        float | None, typer.Option(help="USD that the change costs, once. [default: 0]")
    ] = None
    review: Annotated[
        float | None,
        typer.Option(help="USD of a person's look at one answer. [default: 0]"),
    ] = None
    error: Annotated[
        float | None,
        typer.Option(help="USD of a wrong answer that reaches its user. [default: 0]"),
    ] = None
    start: Annotated[
        str | None,
        typer.Option(help="Day of the change, YYYY-MM-DD. [default: of the file, else today]"),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False


@taking(RoiArguments)
def roi(context: typer.Context, arguments: RoiArguments) -> None:
    """Tell when a change of how requests are served pays back: savings, break-even, sensitivity.

    A request costs its serving, the people who look at answers, and the wrong ones. Every input is
    then made a fifth less and a fifth more. Exits with 1 where the change never pays back.

    Example: mileage plan roi --baseline 'api usd_per_request=0.004' --candidate
    'own usd_per_request=0 usd_per_month=2150' --requests-per-month 900000 --one-time 12000
    """
    flags = _flags(arguments)
    if arguments.file is None and not flags:
        show_usage(context, "FILE", as_json=arguments.as_json)
    _, told = read_roi(arguments.file, flags)
    if told.start is None:
        told = msgspec.structs.replace(told, start=dt.datetime.now(dt.UTC).date())
    assert told.start is not None
    try:
        found = worked_out(told.baseline, told.candidate, told.business, told.start)
    except ConfigError as error:
        raise _by_role(error, told) from None
    if arguments.as_json:
        typer.echo(_document(told, found))
    else:
        show_roi(told, found)
    if found.break_even_months is None:
        raise typer.Exit(1)


def register_roi(group: typer.Typer) -> None:
    """Add the subcommand."""
    group.command()(roi)


def _flags(arguments: RoiArguments) -> dict[str, Any]:
    """Those that were given, by the key of a file."""
    options = {
        "business.requests_per_month": arguments.requests_per_month,
        "business.growth_ratio_per_month": arguments.growth,
        "business.one_time_usd": arguments.one_time,
        "business.review_usd": arguments.review,
        "business.error_usd": arguments.error,
        "start": _day(arguments.start),
        **serving_flags("baseline", arguments.baseline),
        **serving_flags("candidate", arguments.candidate),
    }
    return {key: value for key, value in options.items() if value is not None}


def _day(text: str | None) -> dt.date | None:
    if text is None:
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ConfigError("--start", text, "a day, such as 2027-01-31") from None


def _by_role(error: ConfigError, told: RoiFile) -> ConfigError:
    """An accuracy that is missing, by the table that lacks it: names are free text."""
    lacking = "baseline" if told.baseline.accuracy_ratio is None else "candidate"
    return ConfigError(f"{lacking}.accuracy_ratio", error.value, error.expected)


def _document(told: RoiFile, found: Roi) -> str:
    sensitivity = [
        {**msgspec.to_builtins(each), "swing_usd": each.swing_usd} for each in found.sensitivity
    ]
    tree = {
        **msgspec.to_builtins(found),
        "sensitivity": sensitivity,
        "inputs": msgspec.to_builtins(told),
    }
    return msgspec.json.encode(tree).decode()
