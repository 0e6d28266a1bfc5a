"""Writes a converted trace: to standard output, or to a file that is whole or not there."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from mileage.cli.whole_file import whole_file
from mileage.core.errors import ConfigError
from mileage.workload.writers import WriteFormat

__all__ = ["write_format", "write_lines"]


def write_format(output: str, to: str | None) -> WriteFormat:
    """The format to write: `to`, or by the name of the output. Raises ConfigError."""
    formats = {str(name): name for name in get_args(WriteFormat)}
    if to is not None:
        if to not in formats:
            raise ConfigError("--to", to, f"one of {', '.join(formats)}")
        return formats[to]  # type: ignore[no-any-return]
    plain = output.removesuffix(".gz")
    if plain.endswith(".csv"):
        return "mileage-csv"
    if plain.endswith(".jsonl") or output == "-":
        return "mileage-jsonl"
    raise ConfigError(
        "OUT", output, "a name that ends in .jsonl, .csv, or either with .gz, or --to"
    )


def write_lines(output: str, lines: Iterable[bytes]) -> None:
    """Write all lines to a file, or to stdout for `-`. Raises ConfigError and FileError."""
    if output == "-":
        _to_stdout(lines)
        return
    path = Path(output)
    with whole_file(path, key="OUT") as file:
        if path.suffix == ".gz":
            # No time of writing in it: equal traces are equal files.
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
                packed.writelines(lines)
        else:
            file.writelines(lines)


def _to_stdout(lines: Iterable[bytes]) -> None:
    if sys.stdout is None:
        raise ConfigError("OUT", "-", "standard output to be open")
    sys.stdout.buffer.writelines(lines)
    sys.stdout.buffer.flush()
