"""`mileage engine starts`: how long the last starts took, and whether the newest was slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from mileage.cli.config import state_directory
from mileage.cli.engine_launch import HISTORY_FILE
from mileage.cli.engine_launch_show import phase_words
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.errors import FileError
from mileage.engines.launch.start_history import StartHistory, StartRecord, median_times

__all__ = ["starts"]


def starts(
    model: Annotated[str | None, typer.Option(help="Starts of this model alone.")] = None,
    last: Annotated[int, typer.Option(min=1, help="So many starts of each model.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Phases of the last starts by `engine launch` on this machine: the newest, and medians.

    The median is of the starts before the newest that became ready.

    Exit code 1: the history cannot be read.

    Example: mileage engine starts
    """
    path = state_directory() / HISTORY_FILE
    try:
        records = StartHistory(path).records()
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}") from None
    groups: dict[tuple[str, str | None], list[StartRecord]] = {}
    for record in records:
        if model is None or record.model == model:
            groups.setdefault((record.engine, record.model), []).append(record)
    found = [_group(group[-last:]) for group in groups.values()]
    if as_json:
        typer.echo(msgspec.json.encode({"starts": found}).decode())
        return
    if not found:
        typer.echo("No engine was launched on this machine yet.")
    for each in found:
        _show(each)


def _group(records: Sequence[StartRecord]) -> dict[str, Any]:
    ready = [record for record in records if record.ready]
    before = [record.times for record in ready[:-1]]
    return {
        "engine": records[-1].engine,
        "model": records[-1].model,
        "starts": len(records),
        "failed": len(records) - len(ready),
        "newest": ready[-1] if ready else None,
        "median": median_times(before) if before else None,
        "last_failure": next((r for r in reversed(records) if not r.ready), None),
    }


def _show(found: dict[str, Any]) -> None:
    console = wide_console()
    of = f" of {found['model']}" if found["model"] is not None else ""
    starts = f"{found['starts']} start{'s' if found['starts'] > 1 else ''}"
    console.print(safe_text(f"{found['engine']}{of}: {starts}, {found['failed']} failed"))
    failure: StartRecord | None = found["last_failure"]
    if failure is not None:
        why = failure.cause or f"exit code {failure.exit_code}"
        console.print(safe_text(f"  the last failure: {failure.at_utc}, {why}"))
    newest: StartRecord | None = found["newest"]
    if newest is None:
        return
    median = dict(phase_words(found["median"])) if found["median"] is not None else {}
    table = Table("phase", "newest", "median before", "change", box=None)
    for title, took in phase_words(newest.times):
        usual = median.get(title)
        change = f"{took - usual:+.1f} s" if usual is not None else "-"
        table.add_row(title, f"{took:.1f} s", "-" if usual is None else f"{usual:.1f} s", change)
    console.print(table)
