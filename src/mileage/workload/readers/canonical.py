"""Reads Mileage's own traces: a TraceRequest a line, as JSON or as a row of a CSV table.

What `mileage.workload.writers` writes is read back exactly as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from mileage.core.errors import TraceError
from mileage.workload.json_line import decode_line, fault_text
from mileage.workload.ordering import Row
from mileage.workload.read_options import ReadTally
from mileage.workload.table import Table
from mileage.workload.trace_check import fault_of
from mileage.workload.trace_request import TraceRequest

__all__ = ["FIELDS", "csv_rows", "jsonl_rows"]

FIELDS: Final = TraceRequest.__struct_fields__
"""Names of the columns, in the order in which they are written."""

_decoder = msgspec.json.Decoder(TraceRequest)


def jsonl_rows(lines: Iterable[bytes], path: str, tally: ReadTally) -> Iterator[Row]:
    """Each line as it is. Raises TraceError, also for a name that no field has."""
    for number, text in enumerate(lines, 1):
        if text.isspace() or not text:
            continue
        try:
            request = decode_line(_decoder, text, path, number)
            _require_possible(request, path, number)
        except TraceError as error:
            tally.forgive(error)
            continue
        tally.records += 1
        yield request.arrived_s, number, request


def csv_rows(lines: Iterable[bytes], path: str, tally: ReadTally) -> Iterator[Row]:
    """Each row as it is; an empty cell is a field's default. Raises TraceError."""
    table = Table(lines, path, forgive=tally.forgive)
    header = table.header()
    for name in header:
        if name not in FIELDS:
            raise TraceError(path, 1, f"column {name!r}: expected one of {', '.join(FIELDS)}")
    for number, cells in table:
        values: dict[str, Any] = {}
        for name, cell in zip(header, cells, strict=True):
            if cell:
                values[name] = cell.split(" ") if name == "prefix_blocks" else cell
        try:
            request = _converted(values, path, number)
            _require_possible(request, path, number)
        except TraceError as error:
            tally.forgive(error)
            continue
        tally.records += 1
        yield request.arrived_s, number, request


def _converted(values: dict[str, Any], path: str, number: int) -> TraceRequest:
    try:
        return msgspec.convert(values, TraceRequest, strict=False)
    except msgspec.ValidationError as error:
        raise TraceError(path, number, fault_text(error)) from None
    except ValueError as error:
        raise TraceError(path, number, str(error)) from None


def _require_possible(request: TraceRequest, path: str, number: int) -> None:
    fault = fault_of(request)
    if fault is not None:
        raise TraceError(path, number, fault)
