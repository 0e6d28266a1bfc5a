"""The accounts of a bill as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import typer

from mileage.cli.csv_cell import csv_cell
from mileage.cli.whole_file import check_place, whole_file

__all__ = ["check_csv", "write_csv"]

_COLUMNS: Final = (
    *("name", "gpu_ns", "usd", "requests", "requests_failed", "prompt_tokens", "cached_tokens"),
    *("output_tokens", "used_gpu_ns", "used_usd", "spread_gpu_ns", "spread_usd"),
)


def check_csv(path: Path | None) -> None:
    """Raises ConfigError where the file could not be written."""
    if path is not None and str(path) != "-":
        check_place(path, key="--csv")


def write_csv(path: Path, document: Mapping[str, Any]) -> None:
    """Write one line per account, idle time as `(idle)`, and the total last as `(total)`; an empty
    field is what is not known. `-` is standard output. Raises FileError."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for account in document["accounts"]:
        writer.writerow([_safe(account[name]) for name in _COLUMNS])
    rest = [""] * (len(_COLUMNS) - 3)
    writer.writerow(["(idle)", document["idle_gpu_ns"], _safe(document["idle_usd"]), *rest])
    writer.writerow(["(total)", document["gpu_ns_total"], _safe(document["usd_total"]), *rest])
    if str(path) == "-":
        typer.echo(text.getvalue(), nl=False)
        return
    with whole_file(path, key="--csv") as file:
        file.write(text.getvalue().encode())


def _safe(value: Any) -> Any:
    """An amount as it is; a name as `csv_cell` has it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return csv_cell(value)
    return format(value, "f") if isinstance(value, Decimal) else value
