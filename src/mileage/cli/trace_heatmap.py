"""`mileage trace heatmap`: time by GPU, or by core, of bandwidth use and idle time, as a page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.console import Console

from mileage import __version__
from mileage.cli.bench_options import AsJson
from mileage.cli.config import load_config
from mileage.cli.gpu_points import minute_points
from mileage.cli.html_report import check_report, write_page
from mileage.cli.ledger_options import ConfigFile, LedgerDirectory
from mileage.cli.ledger_place import ledger_place
from mileage.cli.since import since_utc_ns
from mileage.cli.terminal_text import safe_text
from mileage.core.errors import ConfigError
from mileage.measure.gpu_use import BANDWIDTH_FIGURES, BUSY_FIGURES
from mileage.measure.heat_bins import HeatBins, HeatPoint, heat_bins, heat_points
from mileage.scrape.core_use import CoreUse
from mileage.scrape.telemetry_file import read_telemetry
from mileage.storage.gpu_minutes import GpuMinute, read_gpu_minutes
from mileage.storage.open_ledger import is_address
from mileage.storage.postgres_address import display_address
from mileage.workload.synthetic.spelling import seconds_of

if TYPE_CHECKING:
    from mileage.dashboard.heatmap_report import HeatPage

__all__ = ["register_heatmap"]

_MINUTE_S: Final = 60.0
_LIVE_PERIOD_S: Final = 0.25
_LIVE_S_MAX: Final = 3600.0


def register_heatmap(group: typer.Typer) -> None:
    """Register `heatmap` with the group."""
    group.command(name="heatmap")(heatmap)


def heatmap(
    out: Annotated[Path, typer.Option(help="File to write: .html.")],
    since: Annotated[
        str, typer.Option(help="Minutes of the ledger since: 15m, 2h, 7d, or a date and time.")
    ] = "1h",
    telemetry: Annotated[
        Path | None,
        typer.Option(help="In place of the ledger: a file that `mileage cost bottleneck` saved."),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option("--for", help="In place of the ledger: look at this machine's cores for 30s."),
    ] = None,
    config: ConfigFile = None,
    ledger: LedgerDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Write a heatmap of time by GPU: how much of its bandwidth was used, and when it was idle.

    Cells of which nothing is known are marked so; they are not 0. A machine without a GPU shows its
    cores, whose memory bandwidth the kernel does not tell. (Traces of workloads, to replay or to
    simulate, are what the other commands of this group are for.)

    Example: mileage trace heatmap --since 6h --out gpus.html
    """
    if telemetry is not None and live is not None:
        raise ConfigError("--for", live, "no --telemetry beside it: one source of the two")
    if out.suffix != ".html":
        raise ConfigError("--out", str(out), "a file that ends in .html")
    check_report(out, "--out")
    now_ns = time.time_ns()
    if telemetry is not None:
        saved = read_telemetry(_read(telemetry), path=str(telemetry))
        bins, utc = heat_bins(heat_points(saved.samples), width_s=0.1), False
        if saved.zero_at_utc_ns is not None:
            bins, utc = bins._replace(start_s=bins.start_s + saved.zero_at_utc_ns / 1e9), True
        whence = str(telemetry)
    elif live is not None:
        bins, utc = heat_bins(_cores(live), width_s=_LIVE_PERIOD_S), False
        whence = "this machine's cores"
    else:
        place = ledger_place(load_config(config, {}).ledger, ledger)
        start_s, end_s = since_utc_ns(since, now_ns) // 10**9 // 60 * 60, now_ns // 10**9 + 1
        minutes = read_gpu_minutes(place, start_s, end_s, (*BANDWIDTH_FIGURES, *BUSY_FIGURES))
        bins, utc = heat_bins(_minutes(minutes), width_s=_MINUTE_S), True
        shown = display_address(str(place)) if is_address(place) else place
        whence = f"the ledger in {shown}"
    if not bins.rows:
        typer.echo(f"mileage: {safe_text(whence)} has nothing of that time", err=True)
        raise typer.Exit(3)
    from mileage.dashboard.heatmap_report import heatmap_page

    write_page(out, heatmap_page(_page(bins, utc=utc, whence=whence)), "--out")
    columns = len(bins.idle[0])
    if as_json:
        document = {
            "file": str(out),
            "rows": list(bins.rows),
            "columns": columns,
            "column_s": bins.width_s,
            "known_ratio": {"bandwidth": _known(bins.bandwidth), "idle": _known(bins.idle)},
        }
        typer.echo(msgspec.json.encode(document))
    else:
        typer.echo(
            f"wrote {safe_text(str(out))}: {len(bins.rows)} rows by {columns} columns of"
            f" {bins.width_s:g} s"
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError("--telemetry", str(path), f"a file: {error.strerror}") from error


def _cores(text: str) -> Iterator[HeatPoint]:
    """Looks at the cores until the time is over."""
    length_s = seconds_of("--for", text)
    if not 2 * _LIVE_PERIOD_S <= length_s <= _LIVE_S_MAX:
        raise ConfigError("--for", text, f"{2 * _LIVE_PERIOD_S:g}s to 1h")
    use = CoreUse()
    use.look()
    start_s = time.monotonic()
    with Console(stderr=True).status(f"looking at the cores for {text}"):
        for number in range(1, int(length_s / _LIVE_PERIOD_S) + 1):
            time.sleep(max(0.0, start_s + number * _LIVE_PERIOD_S - time.monotonic()))
            for core, idle_ratio in use.look().items():
                at_s = (number - 1) * _LIVE_PERIOD_S
                yield HeatPoint(core, at_s, None, idle_ratio)


def _minutes(minutes: Iterable[GpuMinute]) -> Iterator[HeatPoint]:
    """One point per GPU and minute."""
    for point in minute_points(minutes):
        yield HeatPoint(point.gpu, point.start_ns / 1e9, point.bandwidth_ratio, point.idle_ratio)


def _page(bins: HeatBins, *, utc: bool, whence: str) -> HeatPage:
    at_s = tuple(
        (bins.start_s if utc else 0.0) + column * bins.width_s
        for column in range(len(bins.idle[0]))
    )
    mean_idle = _mean(bins.idle)
    idle = "is not known" if mean_idle is None else f"was {mean_idle:.0%} of the time"
    from mileage.dashboard.heatmap_report import HeatGrid, HeatPage

    return HeatPage(
        verdict=f"Idle {idle}, over {len(bins.rows)} rows",
        facts=(
            ("Source", whence),
            ("Columns", f"{len(at_s)}, {bins.width_s:g} s each"),
            ("Known", f"idle {_known(bins.idle):.0%}, bandwidth {_known(bins.bandwidth):.0%}"),
        ),
        grids=(
            HeatGrid(
                title="Idle share",
                note="Cycles (or time, where cycles are not counted) without work. Red: not known.",
                at_s=at_s,
                utc=utc,
                names=bins.rows,
                values=bins.idle,
                colour="c2",
            ),
            HeatGrid(
                title="Bandwidth use",
                note="Of the memory's cycles, else of the time. Near 80 % is the most that"
                " programs reach. Red: not known.",
                at_s=at_s,
                utc=utc,
                names=bins.rows,
                values=bins.bandwidth,
                colour="c1",
            ),
        ),
        footer=f"Mileage {__version__}",
    )


def _mean(values: tuple[tuple[float | None, ...], ...]) -> float | None:
    known = [value for row in values for value in row if value is not None]
    return sum(known) / len(known) if known else None


def _known(values: tuple[tuple[float | None, ...], ...]) -> float:
    cells = [value is not None for row in values for value in row]
    return sum(cells) / len(cells) if cells else 0.0
