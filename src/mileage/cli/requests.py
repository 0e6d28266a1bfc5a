"""`mileage requests`: the latest requests in the ledger, and their counts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, get_args

import msgspec
import typer
from rich.table import Table

from mileage.cli.bench_options import AsJson
from mileage.cli.config import load_config
from mileage.cli.ledger_options import ConfigFile, LedgerDirectory
from mileage.cli.ledger_place import ledger_place
from mileage.cli.requests_follow import follow_requests, request_document, utc_text
from mileage.cli.since import since_utc_ns
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError
from mileage.core.timeline import Outcome, RequestTimeline
from mileage.storage.engine_requests import EngineFigures
from mileage.storage.queries import LedgerReader, OutcomeCount, RequestFilter

__all__ = ["requests"]


def requests(
    config: ConfigFile = None,
    ledger: LedgerDirectory = None,
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
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Print a JSON document a line for each request that is stored, until Ctrl-C.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest requests in the ledger.

    Reads the database beside a running gateway, which is a fraction of a second behind. With
    --follow it is a structured log of requests, for Loki, say: it begins now, or at --since.

    Example: mileage requests --last 50 --outcome failed --since 1h
    """
    place = ledger_place(load_config(config, {}).ledger, ledger)
    where = RequestFilter(
        tenant=tenant,
        model=model,
        outcome=_outcome(outcome),
        since_utc_ns=None if since is None else since_utc_ns(since, time.time_ns()),
    )
    if follow:
        follow_requests(place, where)
        return
    reader = LedgerReader(place)
    try:
        timelines = reader.last(last, where)
        told = reader.engine_figures([timeline.id for timeline in timelines])
        counts = reader.counts(where) if count else None
        problems = reader.verify() if verify else None
    finally:
        reader.close()
    if as_json:
        typer.echo(msgspec.json.encode(_document(reader.path, timelines, told, counts, problems)))
    else:
        _show(timelines, told, counts, problems)
    if problems:
        raise typer.Exit(1)


def _outcome(text: str | None) -> Outcome | None:
    if text is None:
        return None
    for outcome in get_args(Outcome):
        if text == outcome:
            return outcome  # type: ignore[no-any-return]
    raise ConfigError("--outcome", text, f"one of {', '.join(get_args(Outcome))}")


def _document(
    path: str,
    timelines: list[RequestTimeline],
    told: Mapping[int, EngineFigures],
    counts: list[OutcomeCount] | None,
    problems: list[str] | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "ledger": path,
        "requests": [
            {**request_document(timeline), **_told(told.get(timeline.id))} for timeline in timelines
        ],
    }
    if counts is not None:
        document["counts"] = counts
    if problems is not None:
        document["problems"] = problems
    return document


def _told(figures: EngineFigures | None) -> dict[str, Any]:
    """`engine_queue_s` and so on: what its engine said; None where it did not."""
    return {
        f"engine_{name}": None if figures is None else getattr(figures, name)
        for name in EngineFigures.__struct_fields__
    }


def _show(
    timelines: list[RequestTimeline],
    told: Mapping[int, EngineFigures],
    counts: list[OutcomeCount] | None,
    problems: list[str] | None,
) -> None:
    console = wide_console(highlight=True)
    if timelines:
        console.print(_requests_table(timelines, told))
    elif not counts:
        console.print("no such requests")
    if counts:
        console.print(_counts_table(counts))
    for problem in problems or []:
        console.print(safe_text(f"problem: {problem}"))
    if problems == []:
        console.print("no problem found")


def _requests_table(timelines: list[RequestTimeline], told: Mapping[int, EngineFigures]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("arrived (UTC)", "tenant", "model", "endpoint", "outcome"):
        table.add_column(name)
    for name in ("status", "prompt", "output", "TTFT ms", "ITL p99 ms", "total s"):
        table.add_column(name, justify="right")
    charged = any(t.gpu_ns is not None for t in timelines)
    if charged:
        for name in ("GPU ms", "USD"):
            table.add_column(name, justify="right")
    if told:
        table.add_column("engine queue ms", justify="right")
    table.add_column("replica")
    table.add_column("reason")
    for t in timelines:
        output = t.output_tokens if t.output_tokens is not None else t.output_tokens_counted
        cells = (
            utc_text(t.arrived_at_utc_ns, "milliseconds"),
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
        figures = told.get(t.id)
        waited = (_number(None if figures is None else figures.queue_s, 1000, ".1f"),)
        ending = (t.replica or "", t.reason or "")
        some = (*(charge if charged else ()), *(waited if told else ()))
        table.add_row(*map(safe_text, (*cells, *some, *ending)))
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
