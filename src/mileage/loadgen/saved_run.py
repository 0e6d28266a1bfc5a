"""SavedRun: a run and all that was seen of its requests, in one file that is read back exactly.

The file is gzip of JSON lines: a head with the version of the form, a line per request, and an end
that says how many there were. Moments of tokens are whole nanoseconds, the first since the run
began, each other one since the one before. Nothing in it is text of a prompt or an answer.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec
import numpy as np

from mileage.core.errors import TraceError
from mileage.core.request import Endpoint
from mileage.loadgen.run_meta import RunMeta
from mileage.measure.call_record import CallOutcome, CallRecord, Phase

__all__ = ["VERSION", "SavedRun", "read_run", "write_run"]

VERSION: Final = 1
_LINE_BYTES_MAX: Final = 256 * 1024 * 1024
_RECORDS_MAX: Final = 20_000_000
_NS_PER_S: Final = 1e9
_GZIP: Final = b"\x1f\x8b"
T = TypeVar("T")


class SavedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was, and its records in the order in which they are to be kept."""

    meta: RunMeta
    records: Sequence[CallRecord]


class _Head(msgspec.Struct):
    mileage_run: int
    meta: msgspec.Raw


class _End(msgspec.Struct, kw_only=True):
    end: int


class _Line(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """A CallRecord as it is written: the same fields, but for the tokens."""

    index: int
    phase: Phase
    outcome: CallOutcome
    scheduled_s: float
    target: int = 0
    arm: str = ""
    block: int = 0
    taken_s: float | None = None
    connected_s: float | None = None
    sent_s: float | None = None
    answered_s: float | None = None
    ended_s: float | None = None
    token_times_ns: list[int] = []
    token_events: list[int] = []
    """Empty: one at each moment."""
    endpoint: Endpoint = "chat"
    stream: bool = True
    tenant: str = "default"
    model: str | None = None
    adapter: str | None = None
    status: int | None = None
    error: str | None = None
    attempts: int = 1
    planned_prompt_tokens: int | None = None
    planned_output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    request_id: str | None = None


_PLAIN: Final = tuple(
    name for name in _Line.__struct_fields__ if name not in ("token_times_ns", "token_events")
)
_encode: Final = msgspec.json.Encoder().encode
_decode_head: Final = msgspec.json.Decoder(_Head)
_decode_meta: Final = msgspec.json.Decoder(RunMeta)
_decode_end: Final = msgspec.json.Decoder(_End)
_decode_line: Final = msgspec.json.Decoder(_Line)


def write_run(file: BinaryIO, run: SavedRun) -> None:
    """Write it whole. Raises OSError where the file cannot be written."""
    with gzip.GzipFile(fileobj=file, mode="wb", filename="", compresslevel=6, mtime=0) as packed:
        head = _Head(mileage_run=VERSION, meta=msgspec.Raw(_encode(run.meta)))
        packed.write(_encode(head) + b"\n")
        for record in run.records:
            packed.write(_encode(_line_of(record)) + b"\n")
        packed.write(_encode(_End(end=len(run.records))) + b"\n")


def read_run(path: Path | str) -> SavedRun:
    """What `write_run` wrote. Raises TraceError, with the line, for a file that is something else,
    of a later version, damaged, or cut off."""
    name = str(path)
    try:
        with Path(path).open("rb") as raw:
            if raw.read(2) != _GZIP:
                raise TraceError(name, 0, "is no saved run: expected what `--save` wrote")
            raw.seek(0)
            return _read(_lines(raw, name), name)
    except OSError as error:
        raise TraceError(name, 0, f"cannot be read: {error.strerror or error}") from None


def _read(lines: Iterator[tuple[int, bytes]], name: str) -> SavedRun:
    meta = _meta(next(lines, (1, b""))[1], name)
    records: list[CallRecord] = []
    number = 1
    for number, text in lines:
        if text.startswith(b'{"end":'):
            if _decoded(_decode_end, text, name, number).end != len(records):
                raise TraceError(name, number, f"is damaged: it has {len(records)} requests")
            if next(lines, None) is not None:
                raise TraceError(name, number + 1, "is damaged: something follows its end")
            return SavedRun(meta=meta, records=records)
        if len(records) >= _RECORDS_MAX:
            raise TraceError(name, number, f"has more than {_RECORDS_MAX} requests")
        records.append(_record_of(_decoded(_decode_line, text, name, number), name, number))
    raise TraceError(name, number + 1, "is missing: the file was cut off")


def _meta(text: bytes, name: str) -> RunMeta:
    try:
        head = _decode_head.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TraceError(name, 1, "is no saved run: expected what `--save` wrote") from None
    if head.mileage_run != VERSION:
        raise TraceError(
            name,
            1,
            f"is of version {head.mileage_run} of saved runs: expected {VERSION}, which this"
            " version of mileage writes",
        )
    return _decoded(_decode_meta, bytes(head.meta), name, 1)


def _decoded(decoder: msgspec.json.Decoder[T], text: bytes, name: str, number: int) -> T:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(name, number, f"is damaged: {error}") from None


def _lines(raw: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Whole lines and their numbers, as the file is unpacked."""
    number = 0
    with gzip.GzipFile(fileobj=raw) as packed:
        while True:
            number += 1
            try:
                line = packed.readline(_LINE_BYTES_MAX + 1)
            except EOFError:
                raise TraceError(name, number, "is missing: the file was cut off") from None
            except (gzip.BadGzipFile, zlib.error) as error:
                raise TraceError(name, number, f"is damaged: {error}") from None
            if not line:
                return
            if len(line) > _LINE_BYTES_MAX:
                raise TraceError(name, number, f"is longer than {_LINE_BYTES_MAX} bytes")
            yield number, line


def _line_of(record: CallRecord) -> _Line:
    plain: dict[str, Any] = {name: getattr(record, name) for name in _PLAIN}
    times = np.frombuffer(record.token_times_s, dtype=np.float64)
    whole_ns = np.rint(times * _NS_PER_S).astype(np.int64)
    events = record.token_events
    return _Line(
        token_times_ns=np.diff(whole_ns, prepend=0).tolist(),
        token_events=[] if events.count(1) == len(events) else events.tolist(),
        **plain,
    )


def _record_of(line: _Line, name: str, number: int) -> CallRecord:
    count = len(line.token_times_ns)
    events = line.token_events or [1] * count
    try:
        whole_ns = np.cumsum(np.array(line.token_times_ns, dtype=np.int64))
        times = array("d", (whole_ns / _NS_PER_S).tobytes())
        counts = array("I", events)
    except (OverflowError, ValueError):
        raise TraceError(name, number, "is damaged: a number is too large") from None
    if len(events) != count:
        raise TraceError(name, number, f"is damaged: {count} moments, {len(events)} counts")
    plain: dict[str, Any] = {field: getattr(line, field) for field in _PLAIN}
    return CallRecord(token_times_s=times, token_events=counts, **plain)
