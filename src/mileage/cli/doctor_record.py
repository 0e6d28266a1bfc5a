"""`mileage doctor record`: what a diagnosis rests on, in a directory to send to a colleague."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from mileage import __version__
from mileage.cli.doctor_arguments import DoctorArguments, SourceArguments
from mileage.cli.doctor_dump import FACTS_FILE
from mileage.cli.doctor_dump_engines import write_engines
from mileage.cli.doctor_source import gather
from mileage.cli.simulate_arguments import taking
from mileage.cli.whole_file import whole_file
from mileage.core.errors import ConfigError
from mileage.doctor.redact import Redactor

__all__ = ["RecordArguments", "register_record"]

_ABOUT_FILE: Final = "about.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordArguments(SourceArguments):
    """What to look at, and where to write it."""

    to: Annotated[Path, typer.Option(help="Directory to make; it must not exist or be empty.")]


def register_record(doctor: typer.Typer) -> None:
    """Makes it a subcommand of `mileage doctor`."""
    doctor.command("record")(record)


@taking(RecordArguments)
def record(context: typer.Context, arguments: RecordArguments) -> None:
    """Write what a diagnosis rests on to a directory, to be sent to a colleague.

    It holds the facts, and some of the engines' own pages. Keys, passwords, addresses and people's
    names are taken out; read it before you send it. A diagnosis from it: mileage doctor --dump
    DIRECTORY

    Example: mileage doctor record http://127.0.0.1:8000 --to slow-monday --for 1m
    """
    _check_empty(arguments.to)
    sources = {each.name: getattr(arguments, each.name) for each in fields(SourceArguments)}
    gathered = gather(DoctorArguments(**sources))
    redactor = Redactor()
    _write(arguments.to / FACTS_FILE, redactor.document(gathered.document))
    write_engines(arguments.to, gathered.records, redactor)
    about = {
        "version": __version__,
        "recorded_at_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "watched_for": arguments.duration,
        "urls": arguments.urls or [],
        "notes": gathered.notes,
        "conflicts": [str(conflict) for conflict in gathered.conflicts],
    }
    _write(arguments.to / _ABOUT_FILE, redactor.document(about))
    typer.echo(f"{arguments.to}: look through it before you send it", err=True)


def _check_empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(os.scandir(directory)):
            raise ConfigError("--to", str(directory), "a directory that is empty")
    except OSError as error:
        raise ConfigError("--to", str(directory), f"a directory ({error.strerror})") from None


def _write(path: Path, document: Any) -> None:
    data = msgspec.json.format(msgspec.json.encode(document), indent=2)
    with whole_file(path, key="--to") as file:
        file.write(data + b"\n")
