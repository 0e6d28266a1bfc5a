"""`mileage requests`: the latest requests in the ledger, and their counts."""

from __future__ import annotations

import datetime as dt
import re
import time
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import msgspec
import typer
from rich.table import Table

from mileage.cli.config import ledger_directory, load_config
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError
from mileage.core.timeline import Outcome, RequestTimeline
from mileage.storage.queries import LedgerReader, OutcomeCount, RequestFilter
from mileage.storage.sqlite import DATABASE_NAME

__all__ = ["requests"]

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def requests(
    config: Annotated[Path | None, typer.Option(help="Configuration file, mileage.toml.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger directory. [default: of the configuration]")
    ] = None,
    last: Annotated[
        int, typer.Option(min=0, max=100_000, help="How many requests to show, latest first.")
    ] = 20,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model's.")] = None,
    outcome: Annotated[
        str | None,
        typer.Option(help="Only these: ok, failed, cancelled, rejected or lost."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only those that arrived since: 90s, 15m, 2h, 7d, or a date and time."),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Count all that match, by tenant and outcome.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the whole database; exit 1 for a problem.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the latest requests in the ledger.

    Reads the database beside a running gateway, which is a fraction of a second behind.

    Example: mileage requests --last 50 --outcome failed --since 1h
    """
    directory = _directory(config, ledger)
    where = RequestFilter(
        tenant=tenant,
        model=model,
        outcome=_outcome(outcome),
        since_utc_ns=None if since is None else _since_utc_ns(since, time.time_ns()),
    )
    reader = LedgerReader(directory)
    try:
        timelines = reader.last(last, where)
        counts = reader.counts(where) if count else None
        problems = reader.verify() if verify else None
    finally:
        reader.close()
    if as_json:
        typer.echo(msgspec.json.encode(_document(reader.path, timelines, counts, problems)))
    else:
        _show(timelines, counts, problems)
    if problems:
        raise typer.Exit(1)


def _directory(config: Path | None, ledger: Path | None) -> Path:
    flags = {"ledger.directory": None if ledger is None else str(ledger)}
    directory = ledger_directory(load_config(config, flags).ledger)
    if not (directory / DATABASE_NAME).exists():
        raise ConfigError("--ledger", str(directory), f"a directory with a {DATABASE_NAME}")
    return directory


def _outcome(text: str | None) -> Outcome | None:
    if text is None:
        return None
    for outcome in get_args(Outcome):
        if text == outcome:
            return outcome  # type: ignore[no-any-return]
    raise ConfigError("--outcome", text, f"one of {', '.join(get_args(Outcome))}")


def _since_utc_ns(text: str, now_utc_ns: int) -> int:
    """A moment: a duration before now, or a date (and time), in UTC where it names no zone."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if match:
        return now_utc_ns - int(match[1]) * _UNITS_S[match[2]] * 1_000_000_000
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError("--since", text, "90s, 15m, 2h, 7d, or 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    since_epoch = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since_epoch // dt.timedelta(microseconds=1) * 1000


def _document(
    path: str,
    timelines: list[RequestTimeline],
    counts: list[OutcomeCount] | None,
    problems: list[str] | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "ledger": path,
        "requests": [
            {
                **msgspec.structs.asdict(timeline),
                "arrived_at_utc": _utc(timeline.arrived_at_utc_ns, "microseconds"),
            }
            for timeline in timelines
        ],
    }
    if counts is not None:
        document["counts"] = counts
    if problems is not None:
        document["problems"] = problems
    return document


def _utc(utc_ns: int, precision: str) -> str:
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    try:
        moment = epoch + dt.timedelta(microseconds=utc_ns // 1000)
    except OverflowError:
        return str(utc_ns)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _show(
    timelines: list[RequestTimeline],
    counts: list[OutcomeCount] | None,
    problems: list[str] | None,
) -> None:
    console = wide_console(highlight=True)
    if timelines:
        console.print(_requests_table(timelines))
    elif not counts:
        console.print("no such requests")
    if counts:
        console.print(_counts_table(counts))
    for problem in problems or []:
        console.print(safe_text(f"problem: {problem}"))
    if problems == []:
        console.print("no problem found")


def _requests_table(timelines: list[RequestTimeline]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("arrived (UTC)", "tenant", "model", "endpoint", "outcome"):
        table.add_column(name)
    for name in ("status", "prompt", "output", "TTFT ms", "ITL p99 ms", "total s"):
        table.add_column(name, justify="right")
    charged = any(t.gpu_ns is not None for t in timelines)
    if charged:
        for name in ("GPU ms", "USD"):
            table.add_column(name, justify="right")
    table.add_column("replica")
    table.add_column("reason")
    for t in timelines:
        output = t.output_tokens if t.output_tokens is not None else t.output_tokens_counted
        cells = (
            _utc(t.arrived_at_utc_ns, "milliseconds"),
            t.tenant,
            t.model,
            f"{t.endpoint} (stream)" if t.stream else t.endpoint,
            t.outcome,
            "" if t.status is None else str(t.status),
            _number(t.prompt_tokens),
            _number(output),
            _number(t.first_token_s, 1000, ".1f"),
            _number(t.itl_p99_s, 1000, ".1f"),
            _number(t.finished_s, 1, ".3f"),
        )
        charge = (_number(t.gpu_ns, 1e-6, ".1f"), _number(t.cost_nano_usd, 1e-9, ".6f"))
        ending = (t.replica or "", t.reason or "")
        table.add_row(*map(safe_text, (*cells, *(charge if charged else ()), *ending)))
    return table


def _counts_table(counts: list[OutcomeCount]) -> Table:
    table = Table(box=None, pad_edge=False, title="in all", title_justify="left")
    table.add_column("tenant")
    table.add_column("outcome")
    for name in ("requests", "prompt tokens", "output tokens"):
        table.add_column(name, justify="right")
    for c in counts:
        numbers = (str(c.requests), _number(c.prompt_tokens), _number(c.output_tokens))
        table.add_row(safe_text(c.tenant), c.outcome, *numbers)
    return table


def _number(value: float | None, factor: float = 1, format_spec: str = "") -> str:
    return "" if value is None else format(value * factor, format_spec)
