"""An export of any known profiler -> what it tells."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mileage.core.errors import TraceError
from mileage.doctor.collect.ncu_export import NCU_MARKS, ncu_notes, ncu_reading
from mileage.doctor.collect.nsys_export import NSYS_MARKS, nsys_reading
from mileage.doctor.collect.profile_numerals import unit_of
from mileage.doctor.collect.profile_reading import ProfileReading
from mileage.doctor.collect.profile_table import ProfileTable, json_tables, printed_tables
from mileage.doctor.collect.py_spy_stacks import py_spy_reading
from mileage.doctor.collect.torch_trace import torch_reading

__all__ = ["profile_reading"]

_EXPECTED: Final = (
    "no export that is known: a trace of torch.profiler, CSV or JSON of `nsys stats`, "
    "CSV of `ncu`, or `py-spy record --format raw`"
)
_STACK: Final = re.compile(r"\S.*;.* \d+|\S.* \([^()]*\) \d+")
_PROCESS: Final = re.compile(r'process \d+:"')
_JSON_LINE: Final = re.compile(r"^\s*[\[{]", re.MULTILINE)
_DOCUMENTS_MAX: Final = 100


def profile_reading(data: bytes, *, place: str) -> ProfileReading:
    """Read it by what is in it; its name does not matter.

    Raises:
        TraceError: it is no export that is known, or broken: with the line or record, from 1.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = _utf8(data, "utf-16", place).encode()
    elif data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    head = data[:4_000_000].lstrip()
    if head[:1] in (b"{", b"[") and (b'"traceEvents"' in data or b'"ph"' in head):
        return torch_reading(data, place=place)
    text = _utf8(data, "utf-8", place)
    ncu = printed_tables(text, place=place, marks=NCU_MARKS)
    notes = ncu_notes(text)
    if ncu:
        return ncu_reading(ncu, place=place, notes=notes)
    nsys = printed_tables(text, place=place, marks=NSYS_MARKS) or _json(text, place)
    if nsys:
        return nsys_reading(nsys, place=place)
    if notes:
        raise TraceError(place, 0, notes[0])
    first = next((line for line in text.splitlines() if line.strip()), "")
    if _STACK.fullmatch(first) or _PROCESS.match(first):
        return py_spy_reading(text, place=place)
    raise TraceError(place, 0, _EXPECTED)


def _utf8(data: bytes, encoding: str, place: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise TraceError(place, line, f"no text ({error.reason})") from None


def _json(text: str, place: str) -> list[ProfileTable]:
    """Reports of `nsys stats --format json`, one after another among other lines."""
    decoder = json.JSONDecoder()
    tables: list[ProfileTable] = []
    at = 0
    for _ in range(_DOCUMENTS_MAX):
        match = _JSON_LINE.search(text, at)
        if match is None:
            break
        start = match.end() - 1
        try:
            document: Any
            document, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, start) + 1
            raise TraceError(place, line, f"no JSON ({error})") from None
        tables += json_tables(document, place=place)
    return [table for table in tables if any(mark <= _names(table) for mark in NSYS_MARKS)]


def _names(table: ProfileTable) -> set[str]:
    return {unit_of(name)[0] for name in table.header}
