"""Writes a converted trace: to standard output, or to a file that is whole or not there."""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from mileage.core.errors import ConfigError, TraceError
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
    """Write all lines to a file, or to stdout for `-`. Raises TraceError."""
    if output == "-":
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            partial = Path(file.name)
            try:
                if path.suffix == ".gz":
                    # No time of writing in it: equal traces are equal files.
                    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
                        packed.writelines(lines)
                else:
                    file.writelines(lines)
                file.flush()
                partial.chmod(0o666 & ~_umask())
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise TraceError(output, 0, f"cannot be written: {error.strerror or error}") from None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
