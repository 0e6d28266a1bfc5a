"""`mileage trace`: looks at traces of requests, converts them, fetches public ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from mileage.cli.progress import Steps
from mileage.cli.trace_arguments import columns_of_options, read_options, trace_part, window_of
from mileage.cli.trace_catalogue import CATALOGUE, trace_directory
from mileage.cli.trace_fetch import fetch_trace
from mileage.cli.trace_heatmap import register_heatmap
from mileage.cli.trace_names import near_data_sets
from mileage.cli.trace_otel import register_otel
from mileage.cli.trace_output import write_format, write_lines
from mileage.cli.trace_perfetto import register_perfetto
from mileage.cli.trace_report import report_of, show_report
from mileage.cli.trace_source import open_trace
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError
from mileage.engines.embedded.web_source import WebSettings, WebSource
from mileage.workload.census import Census
from mileage.workload.read_options import ReadOptions
from mileage.workload.synthetic.spelling import seconds_of
from mileage.workload.trace_request import TraceRequest
from mileage.workload.transforms import TraceView, mix
from mileage.workload.writers import writer_of

__all__ = ["trace"]


trace = typer.Typer(
    help="Look at traces of requests, convert them, fetch public ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
register_heatmap(trace)
register_otel(trace)
register_perfetto(trace)

Source = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="A file, a ledger's or journal's directory, -, synthetic:rate=..., or the name of a "
        "fetched data set.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Of the trace: azure, burstgpt, csv, mileage-csv, mileage-jsonl or mooncake. "
        "[default: told from its first line]",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(help="Of a csv: FIELD=COLUMN, for columns whose names are not known."),
]
TimeUnit = Annotated[
    str | None,
    typer.Option(help="Of numbers in a csv's time column: s, ms, us or ns. [default: by its name]"),
]
KeepFailed = Annotated[
    bool,
    typer.Option("--keep-failed", help="Keep requests that generated nothing, as of one token."),
]
Spread = Annotated[
    str,
    typer.Option(help="Arrivals with one timestamp over the time to the next: none, even, random."),
]
SpreadMax = Annotated[str, typer.Option(help="The longest time that they are spread over.")]
Window = Annotated[
    str | None, typer.Option(help="START:DURATION: only arrivals in it, such as 10m:1h.")
]
RateScale = Annotated[float, typer.Option(help="So many times as many arrivals per second.")]
Sample = Annotated[float, typer.Option(help="Keep this share of the requests, at random.")]
Head = Annotated[int | None, typer.Option(help="At most so many requests.")]
Tenant = Annotated[list[str] | None, typer.Option(help="Only this tenant's; may be repeated.")]
Model = Annotated[list[str] | None, typer.Option(help="Only this model's; may be repeated.")]
Seed = Annotated[int, typer.Option(help="Of all that is random here.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@trace.command()
def describe(
    source: Source,
    format: Format = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    keep_failed: KeepFailed = False,
    spread: Spread = "none",
    spread_max: SpreadMax = "3s",
    window: Window = None,
    rate_scale: RateScale = 1.0,
    sample: Sample = 1.0,
    head: Head = None,
    tenant: Tenant = None,
    model: Model = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Tell what is in a trace: rates over time, burstiness, lengths, shared prefixes, tenants.

    Example: mileage trace describe azure-conv-2023
    """
    options = _options(format, columns, time_unit, keep_failed, spread, spread_max, seed)
    part = _part(window, rate_scale, sample, head, tenant, model, seed)
    census = Census()
    with Steps(Console(stderr=True, highlight=False)) as steps:
        opened = open_trace(source, options=options, part=part, progress=steps)
        with opened:
            for request in opened:
                census.add(request)
    report = report_of(opened.name, census, opened.tally)
    if as_json:
        typer.echo(msgspec.json.encode(report))
    else:
        show_report(report, wide_console())
    if not census.requests:
        typer.echo("mileage: no request is left of this trace", err=True)
        raise typer.Exit(3)


@trace.command()
def convert(
    source: Source,
    output: Annotated[
        str,
        typer.Argument(metavar="OUT", help="NAME.jsonl or NAME.csv, also with .gz; - is stdout."),
    ],
    to: Annotated[
        str | None,
        typer.Option(help="mileage-jsonl or mileage-csv. [default: by the name of OUT]"),
    ] = None,
    mixed: Annotated[
        list[str] | None,
        typer.Option("--mix", help="Another trace, merged in by arrival; may be repeated."),
    ] = None,
    format: Format = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    keep_failed: KeepFailed = False,
    spread: Spread = "none",
    spread_max: SpreadMax = "3s",
    window: Window = None,
    rate_scale: RateScale = 1.0,
    sample: Sample = 1.0,
    head: Head = None,
    tenant: Tenant = None,
    model: Model = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Write a trace, or a part of it, in Mileage's own format: nothing is lost on the way.

    Options of reading and of the part go for every trace that is mixed in, too.

    Example: mileage trace convert azure-conv-2023 hour.jsonl.gz --window 10m:20m --rate-scale 2
    """
    options = _options(format, columns, time_unit, keep_failed, spread, spread_max, seed)
    part = _part(window, rate_scale, sample, None, tenant, model, seed)
    kind = write_format(output, to)
    if output == "-" and as_json:
        raise ConfigError("--json", "--json", "OUT to be a file, since both go to stdout")
    console = Console(stderr=True, highlight=False)
    with contextlib.ExitStack() as stack:
        steps = stack.enter_context(Steps(console))
        opened = [
            stack.enter_context(open_trace(spec, options=options, part=part, progress=steps))
            for spec in (source, *(mixed or ()))
        ]
        requests: Iterable[TraceRequest] = mix(opened) if len(opened) > 1 else opened[0]
        counted = _Counted(requests, head)
        write_lines(output, writer_of(kind)(counted))
    if as_json:
        document = {
            "output": output,
            "format": kind,
            "requests": counted.requests,
            "duration_s": counted.last_s,
            "failed": sum(o.tally.failed for o in opened),
            "reordered": sum(o.tally.reordered for o in opened),
        }
        typer.echo(msgspec.json.encode(document))
    else:
        console.print(f"{counted.requests:,} requests, {counted.last_s:.6g} s", markup=False)


@trace.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Data sets; none lists them.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where to put them. [default: traces/ in the cache]")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Another place of the one data set, a mirror's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch public traces into the cache; their names are then traces for every command.

    What is fetched has the size and checksum that are known of it, or is not kept.

    Example: mileage trace fetch azure-conv-2023 mooncake-conversation
    """
    place = directory or trace_directory(os.environ)
    wanted = names or []
    for name in wanted:
        if name not in CATALOGUE:
            near = near_data_sets(name) or list(CATALOGUE)
            raise ConfigError("NAME", name, f"one of {', '.join(near)}")
    if url is not None and len(wanted) != 1:
        raise ConfigError("--url", url, "exactly one NAME")
    if not wanted:
        _list(place, as_json=as_json)
        return
    with Steps(Console(stderr=True, highlight=False)) as steps:
        web = WebSource(WebSettings())
        paths = {
            name: fetch_trace(name, CATALOGUE[name], place, open_url=web, progress=steps, url=url)
            for name in dict.fromkeys(wanted)
        }
    if as_json:
        typer.echo(msgspec.json.encode({name: str(path) for name, path in paths.items()}))
    else:
        for name, path in paths.items():
            typer.echo(f"{name}: {path} ({CATALOGUE[name].licence})")


def _list(place: Path, *, as_json: bool) -> None:
    rows = [
        {
            "name": name,
            "about": known.about,
            "licence": known.licence,
            "url": known.url,
            "path": str(place / known.file_name),
            "fetched": (place / known.file_name).exists(),
        }
        for name, known in CATALOGUE.items()
    ]
    if as_json:
        typer.echo(msgspec.json.encode(rows))
        return
    for row in rows:
        mark = "*" if row["fetched"] else " "
        typer.echo(f"{mark} {row['name']:<22} {row['about']} ({row['licence']})")


def _options(
    format: str | None,
    columns: list[str] | None,
    time_unit: str | None,
    keep_failed: bool,
    spread: str,
    spread_max: str,
    seed: int,
) -> ReadOptions:
    return read_options(
        format=format,
        columns=columns_of_options(columns or ()),
        time_unit=time_unit,
        keep_failed=keep_failed,
        spread=spread,
        spread_max_s=seconds_of("--spread-max", spread_max),
        seed=seed,
    )


def _part(
    window: str | None,
    rate_scale: float,
    sample: float,
    head: int | None,
    tenants: list[str] | None,
    models: list[str] | None,
    seed: int,
) -> TraceView:
    return trace_part(
        **window_of(window),
        rate_scale=rate_scale,
        sample_ratio=sample,
        head=head,
        tenants=tuple(tenants or ()),
        models=tuple(models or ()),
        seed=seed,
    )


class _Counted:
    """Passes requests on, at most `head` of them, and counts them."""

    def __init__(self, requests: Iterable[TraceRequest], head: int | None) -> None:
        self._requests, self._head = requests, head
        self.requests = 0
        self.last_s = 0.0

    def __iter__(self) -> Iterator[TraceRequest]:
        for request in self._requests:
            self.requests += 1
            self.last_s = request.arrived_s
            yield request
            if self.requests == self._head:
                return
