"""`mileage trace perfetto`: served requests and engine steps as a trace for ui.perfetto.dev."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, BinaryIO, Final, NamedTuple

import msgspec
import typer

from mileage.cli.bench_options import AsJson
from mileage.cli.config import load_config
from mileage.cli.gpu_points import POINT_FIELDS, minute_points, sample_points
from mileage.cli.ledger_options import ConfigFile, LedgerDirectory
from mileage.cli.ledger_place import ledger_place
from mileage.cli.ledger_requests import LedgerRequests
from mileage.cli.requests_follow import utc_text
from mileage.cli.since import since_utc_ns
from mileage.cli.terminal_text import safe_text
from mileage.cli.whole_file import check_place, whole_file
from mileage.core.errors import ConfigError
from mileage.dashboard.gpu_tracks import GpuPoint, GpuTracks
from mileage.dashboard.perfetto_json import JsonTrace
from mileage.dashboard.perfetto_proto import ProtoTrace
from mileage.dashboard.request_tracks import RequestTracks, TraceCounts
from mileage.dashboard.step_tracks import write_steps
from mileage.dashboard.trace_writer import TraceWriter
from mileage.scrape.telemetry_file import read_telemetry
from mileage.storage.gpu_minutes import read_gpu_minutes
from mileage.storage.request_follower import LONG_NS
from mileage.storage.sqlite import DATABASE_NAME
from mileage.storage.step_file import read_steps

__all__ = ["register_perfetto"]

_MINUTE_NS: Final = 60_000_000_000

_FORMATS: Final[dict[str, Callable[[BinaryIO], TraceWriter]]] = {
    ".pftrace": ProtoTrace,
    ".perfetto-trace": ProtoTrace,
    ".json": JsonTrace,
}


def register_perfetto(group: typer.Typer) -> None:
    """Register `perfetto` with the group."""
    group.command(name="perfetto")(perfetto)


def perfetto(
    out: Annotated[Path, typer.Option(help="File to write: .pftrace (Perfetto's own), or .json.")],
    since: Annotated[
        str, typer.Option(help="Requests that arrived since: 90s, 15m, 2h, or a date and time.")
    ] = "5m",
    until: Annotated[
        str | None, typer.Option(help="And before: as --since. [default: now]")
    ] = None,
    steps: Annotated[
        list[Path] | None,
        typer.Option(help="Files of engine steps, as `mileage simulate --steps` writes them."),
    ] = None,
    telemetry: Annotated[
        list[Path] | None,
        typer.Option(help="Files of looks at GPUs that `mileage cost bottleneck` saved."),
    ] = None,
    no_requests: Annotated[
        bool, typer.Option("--no-requests", help="Only what files have, nothing of the ledger.")
    ] = False,
    config: ConfigFile = None,
    ledger: LedgerDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Write served requests, and engine steps, as a trace to look at in ui.perfetto.dev.

    Each request is a slice with its stages: the gateway's queue, prefill, decode; an arrow leads
    from the gateway to its replica. Beside them are curves of how many ran and waited, the engine's
    steps with its idle time, and of each GPU bandwidth use, idle cycles and power, all on one
    clock. (Traces of workloads, to replay or to simulate, are what the other commands of this group
    are for.)

    Example: mileage trace perfetto --since 10m --out last.pftrace
    """
    form = _FORMATS.get(out.suffix)
    if form is None:
        raise ConfigError("--out", str(out), "a file that ends in .pftrace or .json")
    check_place(out, key="--out")
    now_ns = time.time_ns()
    start_ns = since_utc_ns(since, now_ns)
    end_ns = now_ns if until is None else since_utc_ns(until, now_ns)
    if end_ns <= start_ns:
        raise ConfigError("--until", until, f"a time after --since {since}")
    place = None
    if not no_requests:
        expected = f"a directory with a {DATABASE_NAME}, or --no-requests"
        place = ledger_place(load_config(config, {}).ledger, ledger, expected=expected)
    looks = [_looks(path) for path in telemetry or ()]
    with whole_file(out, key="--out") as file:
        written = _write(form(file), _Picture(place, start_ns, end_ns, steps or [], looks))
    if as_json:
        typer.echo(msgspec.json.encode(_document(out, written)))
    else:
        typer.echo(
            f"wrote {safe_text(str(out))}: {written.counts.requests} requests,"
            f" {written.steps} steps, {written.gpus} GPUs;"
            " open it at https://ui.perfetto.dev (it stays on your machine)"
        )
    if not written.counts.slices:
        typer.echo("mileage: nothing was on record in that time", err=True)
        raise typer.Exit(3)


class _Picture(NamedTuple):
    """What is to be written: of the ledger at `place` between the times, and all of the files."""

    place: Path | str | None
    start_ns: int
    end_ns: int
    steps: list[Path]
    looks: list[list[GpuPoint]]


class _Written(NamedTuple):
    counts: TraceCounts
    steps: int
    gpus: int


def _document(out: Path, written: _Written) -> dict[str, str | int | None]:
    counts = written.counts
    return {
        "file": str(out),
        "requests": counts.requests,
        "steps": written.steps,
        "gpus": written.gpus,
        "slices": counts.slices,
        "first_at_utc": _moment(counts.first_ns),
        "last_at_utc": _moment(counts.last_ns),
    }


def _looks(path: Path) -> list[GpuPoint]:
    """Read, and found to be in order, before anything is written."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError("--telemetry", str(path), f"a file: {error.strerror}") from error
    return list(sample_points(read_telemetry(data, path=str(path)), path=str(path)))


def _write(writer: TraceWriter, picture: _Picture) -> _Written:
    tracks = RequestTracks(writer)
    counts, start_ns, gpus = tracks.counts, picture.start_ns, 0
    if picture.place is not None:
        # Those that arrived before and still ran are in the picture, too.
        arrived = LedgerRequests(picture.place).arrived(start_ns - LONG_NS, picture.end_ns)
        tracks.write(
            timeline
            for timeline in arrived
            if timeline.arrived_at_utc_ns + round(1e9 * (timeline.finished_s or 0.0)) >= start_ns
        )
    tracks.finish()
    step_count = 0
    for path in picture.steps:
        step_count += write_steps(writer, read_steps(path), tracks.process_of, counts)
    if picture.place is not None:
        from_s = start_ns // _MINUTE_NS * 60
        until_s = -(-picture.end_ns // 1_000_000_000)
        minutes = read_gpu_minutes(picture.place, from_s, until_s, POINT_FIELDS)
        seen = GpuTracks(writer, counts, source="minutes of the ledger")
        gpus += seen.write(minute_points(minutes))
    for points in picture.looks:
        gpus += GpuTracks(writer, counts, source="saved looks").write(points)
    writer.finish()
    return _Written(counts, step_count, gpus)


def _moment(at_ns: int | None) -> str | None:
    return None if at_ns is None else utc_text(at_ns, "microseconds")
