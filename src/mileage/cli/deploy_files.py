"""write_files(), tell_files(): a deployment's files in a directory, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import typer

from mileage.cli.whole_file import whole_file
from mileage.core.errors import ConfigError

__all__ = ["tell_files", "write_files"]


def write_files(out: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write the files by name into `out`; their paths. Directories are made where missing.

    A file that is there already is replaced. Raises ConfigError where one cannot be written.
    """
    try:
        for directory in {out, *((out / name).parent for name in files)}:
            directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("--out", str(out), f"a directory: {error.strerror}") from error
    for name, content in files.items():
        with whole_file(out / name, key="--out") as file:
            file.write(content)
    return [str(out / name) for name in files]


def tell_files(paths: Sequence[str], *, as_json: bool) -> None:
    """Say what was written."""
    if as_json:
        typer.echo(msgspec.json.encode({"files": paths}))
    else:
        for path in paths:
            typer.echo(f"wrote {path}")
