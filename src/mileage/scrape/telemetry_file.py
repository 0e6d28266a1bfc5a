"""Saved telemetry: lines of JSON that `mileage cost bottleneck` writes, or pages of an exporter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from mileage.core.errors import TraceError
from mileage.measure.gpu_sample import GpuSample
from mileage.measure.serving_host import HostMoment, LoadMoment
from mileage.measure.telemetry import Telemetry
from mileage.scrape.gpu_dcgm import dcgm_samples

__all__ = ["pages_of", "read_telemetry", "telemetry_lines"]

_VERSION = 1
_SERIES = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^\n]*\})?")


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The first has `telemetry`, all others one of the looks."""

    telemetry: int | None = None
    missing: dict[str, str] = {}
    zero_at_utc_ns: int | None = None
    gpu: GpuSample | None = None
    host: HostMoment | None = None
    load: LoadMoment | None = None


def telemetry_lines(telemetry: Telemetry) -> Iterator[bytes]:
    """The file, line by line."""
    encode = msgspec.json.encode
    zero_ns = telemetry.zero_at_utc_ns
    head = _Line(telemetry=_VERSION, missing=telemetry.missing, zero_at_utc_ns=zero_ns)
    yield encode(head) + b"\n"
    for sample in telemetry.samples:
        yield encode(_Line(gpu=sample)) + b"\n"
    for host in telemetry.hosts:
        yield encode(_Line(host=host)) + b"\n"
    for load in telemetry.loads:
        yield encode(_Line(load=load)) + b"\n"


def read_telemetry(
    data: bytes, *, path: str, gpu_ids: Sequence[str] = (), period_s: float = 1.0
) -> Telemetry:
    """What a file says. Pages of a DCGM exporter, one after another, have no times: they count as
    `period_s` apart. `gpu_ids` as for `dcgm_samples`. Raises TraceError with the line."""
    if data.lstrip()[:1] == b"{":
        return _read_lines(data, path)
    samples: list[GpuSample] = []
    for number, (line, page) in enumerate(pages_of(data)):
        try:
            samples += dcgm_samples(page, at_s=number * period_s, gpu_ids=gpu_ids)
        except ValueError as error:
            raise TraceError(path, line, str(error)) from error
    if not samples:
        raise TraceError(path, 0, "is empty")
    return Telemetry(samples=tuple(samples))


def pages_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each page of a file of several, with the number of its first line: a page begins where the
    first one's first series comes again, with the comments before it."""
    lines = data.splitlines(keepends=True)
    first: bytes | None = None
    start = comments = 0
    for place, line in enumerate(lines):
        match = None if line.startswith(b"#") else _SERIES.match(line)
        if match is None:
            continue
        if first is None:
            first = match[0]
        elif match[0] == first:
            yield start + 1, b"".join(lines[start:comments])
            start = comments
        comments = place + 1
    if lines:
        yield start + 1, b"".join(lines[start:])


def _read_lines(data: bytes, path: str) -> Telemetry:
    samples: list[GpuSample] = []
    hosts: list[HostMoment] = []
    loads: list[LoadMoment] = []
    missing: dict[str, str] = {}
    zero_ns: int | None = None
    decoder = msgspec.json.Decoder(_Line)
    for number, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(path, number, f"is no line of saved telemetry: {error}") from None
        if number == 1 and line.telemetry != _VERSION:
            raise TraceError(path, 1, f"is not telemetry of version {_VERSION}")
        missing.update(line.missing)
        zero_ns = line.zero_at_utc_ns if number == 1 else zero_ns
        if line.gpu is not None:
            samples.append(line.gpu)
        if line.host is not None:
            hosts.append(line.host)
        if line.load is not None:
            loads.append(line.load)
    return Telemetry(
        samples=tuple(sorted(samples, key=lambda each: each.at_s)),
        hosts=tuple(sorted(hosts, key=lambda each: each.at_s)),
        loads=tuple(sorted(loads, key=lambda each: each.at_s)),
        missing=missing,
        zero_at_utc_ns=zero_ns,
    )
