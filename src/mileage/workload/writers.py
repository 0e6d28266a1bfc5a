"""Writes requests as lines of Mileage's own formats, which are read back exactly."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from mileage.workload.readers.canonical import FIELDS
from mileage.workload.trace_request import TraceRequest

__all__ = ["WriteFormat", "csv_lines", "jsonl_lines", "writer_of"]

WriteFormat = Literal["mileage-csv", "mileage-jsonl"]

_encode: Final = msgspec.json.Encoder().encode
_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(TraceRequest)}


def jsonl_lines(requests: Iterable[TraceRequest]) -> Iterator[bytes]:
    """One JSON object a line, each with its end; fields that have their default are left out."""
    return (_encode(request) + b"\n" for request in requests)


def csv_lines(requests: Iterable[TraceRequest]) -> Iterator[bytes]:
    """A header and one row a request; a field that has its default is an empty cell."""
    sink = _Sink()
    # A carriage return in a name is only put in quotes where the line's end has one.
    table = csv.writer(sink, lineterminator="\r\n")
    table.writerow(FIELDS)
    yield sink.taken()
    for request in requests:
        table.writerow([_cell(name, getattr(request, name)) for name in FIELDS])
        yield sink.taken()


def writer_of(kind: WriteFormat) -> Callable[[Iterable[TraceRequest]], Iterator[bytes]]:
    """The function that writes this format."""
    return csv_lines if kind == "mileage-csv" else jsonl_lines


class _Sink:
    """Takes what csv writes."""

    def __init__(self) -> None:
        self._text = ""

    def write(self, text: str) -> None:
        self._text += text

    def taken(self) -> bytes:
        text, self._text = self._text, ""
        return text.removesuffix("\r\n").encode() + b"\n"


def _cell(name: str, value: Any) -> str:
    if value == _DEFAULTS[name]:
        return ""
    if name == "prefix_blocks":
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
