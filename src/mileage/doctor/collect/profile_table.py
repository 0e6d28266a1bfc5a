"""Tables in what a profiler printed: CSV between lines of other kinds, or JSON records."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage.core.errors import TraceError
from mileage.doctor.collect.profile_numerals import unit_of

__all__ = ["ProfileTable", "json_tables", "printed_tables"]

_DELIMITERS: Final = (",", ";", "\t")
_COLUMNS_MAX: Final = 20_000
_ROWS_MAX: Final = 5_000_000
_REPORT: Final = re.compile(r"with \[(?:.*[/\\])?([A-Za-z_]+?)(?:\.py)?[ \]]")


class ProfileTable(msgspec.Struct, frozen=True, kw_only=True):
    """A header and its rows; each row with the line (or record) it is from, counted from 1."""

    report: str
    """What the profiler calls it, `cuda_gpu_kern_sum`; empty where it is not told."""
    header: tuple[str, ...]
    rows: list[tuple[int, tuple[str, ...]]]


def printed_tables(text: str, *, place: str, marks: Sequence[frozenset[str]]) -> list[ProfileTable]:
    """All tables of the text, with any lines before, between and after them.

    `marks`: column names in lower case, without unit; a line is a header where it has all of one.

    Raises:
        TraceError: a row has not as many cells as its header, or its quotes do not end.
    """
    tables: list[ProfileTable] = []
    lines = text.splitlines(keepends=True)
    at, report = 0, ""
    while at < len(lines):
        line = lines[at]
        told = _REPORT.search(line)
        if told is not None:
            report = told[1]
        delimiter = _header_delimiter(line, marks)
        if delimiter is None:
            at += 1
            continue
        table, at = _table(lines, at, delimiter, report, place)
        tables.append(table)
    return tables


def json_tables(document: Any, *, place: str) -> list[ProfileTable]:
    """Records of `nsys stats --format json`: a list of objects of the same names.

    Raises:
        TraceError: a record is no object of plain values.
    """
    records = document if isinstance(document, list) else [document]
    groups: dict[tuple[str, ...], list[tuple[int, tuple[str, ...]]]] = {}
    for number, record in enumerate(records, start=1):
        if not isinstance(record, Mapping) or any(
            isinstance(value, list | Mapping) for value in record.values()
        ):
            raise TraceError(place, number, "a record of a report is one object of plain values")
        row = tuple("" if value is None else str(value) for value in record.values())
        groups.setdefault(tuple(record), []).append((number, row))
    return [
        ProfileTable(report="", header=header, rows=rows)
        for header, rows in groups.items()
        if header
    ]


def _header_delimiter(line: str, marks: Sequence[frozenset[str]]) -> str | None:
    if len(line) > 1_000_000:
        return None
    lowered = line.lower()
    if not any(all(name in lowered for name in mark) for mark in marks):
        return None
    for delimiter in _DELIMITERS:
        cells = line.split(delimiter)
        if len(cells) > _COLUMNS_MAX:
            continue
        names = {unit_of(cell)[0] for cell in cells}
        if any(mark <= names for mark in marks):
            return delimiter
    return None


def _table(
    lines: list[str], at: int, delimiter: str, report: str, place: str
) -> tuple[ProfileTable, int]:
    """The table whose header is line `at`, and the line after it."""
    header = _cells(lines[at], delimiter)
    rows: list[tuple[int, tuple[str, ...]]] = []
    start = at + 1

    def source() -> Iterator[str]:
        for number in range(start, len(lines)):
            yield lines[number].replace("\0", "")

    reader = csv.reader(source(), delimiter=delimiter)
    line_number = start + 1
    try:
        for row in reader:
            first, line_number = line_number, start + reader.line_num + 1
            if len(row) <= 1 and len(header) > 1:
                # The line is looked at again: it may say which report comes next.
                return _made(report, header, rows), start + reader.line_num - 1
            if len(row) != len(header):
                raise TraceError(
                    place, first, f"{len(row)} cells, where the header has {len(header)}"
                )
            if len(rows) >= _ROWS_MAX:
                raise TraceError(place, first, f"more than {_ROWS_MAX} rows")
            rows.append((first, tuple(row)))
    except csv.Error as error:
        raise TraceError(place, line_number, f"no CSV ({error})") from None
    return _made(report, header, rows), len(lines)


def _made(
    report: str, header: tuple[str, ...], rows: list[tuple[int, tuple[str, ...]]]
) -> ProfileTable:
    return ProfileTable(report=report, header=header, rows=rows)


def _cells(line: str, delimiter: str) -> tuple[str, ...]:
    return tuple(cell.strip().strip('"').strip() for cell in line.rstrip("\r\n").split(delimiter))
