"""read_trace(): the requests of a trace in any known format, out of its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from mileage.core.errors import ConfigError, TraceError
from mileage.workload.formats import detect_format
from mileage.workload.ordering import Row, in_order
from mileage.workload.read_options import ReadOptions, ReadTally, TraceFormat
from mileage.workload.readers.any_table import table_rows
from mileage.workload.readers.azure import azure_rows
from mileage.workload.readers.burstgpt import burstgpt_rows
from mileage.workload.readers.canonical import csv_rows, jsonl_rows
from mileage.workload.readers.mooncake import mooncake_rows
from mileage.workload.spreading import spread
from mileage.workload.trace_request import TraceRequest

__all__ = ["read_trace"]

_BLANK_MAX = 1000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_trace(
    lines: Iterable[bytes],
    *,
    path: str,
    options: ReadOptions | None = None,
    tally: ReadTally | None = None,
) -> Iterator[TraceRequest]:
    """The requests in the order of arrival, one after another: memory does not grow with them.

    `lines` are those of the file, with or without their ends; `path` names it in errors. The first
    request arrives at 0 s, but in traces that have a zero of their own (mooncake and mileage's).
    `tally` is counted up on the way. Raises TraceError for a record that is not as its format says
    (beyond the first `options.bad_max` of them), where it comes to it, and for a trace without any
    record; ConfigError for `columns` or a
    `time_unit` of a trace that is no `csv`.
    """
    options = options or ReadOptions()
    tally = tally if tally is not None else ReadTally()
    return _requests(lines, path, options, tally)


def _requests(
    lines: Iterable[bytes], path: str, options: ReadOptions, tally: ReadTally
) -> Iterator[TraceRequest]:
    source = iter(lines)
    head: list[bytes] = []
    for line in source:
        head.append(line)
        if line.strip():
            break
        if len(head) >= _BLANK_MAX:
            raise TraceError(path, len(head), "begins with empty lines: expected a trace")
    else:
        raise TraceError(path, 1, "is empty: expected a trace")
    head[0] = head[0].removeprefix(_BYTE_ORDER_MARK)
    tally.expect_bad(options.bad_max)
    tally.format = kind = options.format or detect_format(head[-1], path)
    _check_options(kind, options)
    rows = _rows(kind, chain(head, source), path, options, tally)
    own_zero = kind in ("mileage-csv", "mileage-jsonl", "mooncake")
    requests = in_order(rows, path, tally, places=options.reorder_places, from_first=not own_zero)
    if options.spread != "none":
        requests = spread(
            requests,
            options.spread,
            step_max_s=options.spread_max_s,
            seed=options.seed,
            path=path,
        )
    yield from requests
    if not tally.records:
        raise TraceError(path, 1, "has no record below its header")


def _check_options(kind: TraceFormat, options: ReadOptions) -> None:
    """What is only for a table of any columns is not ignored elsewhere. Raises ConfigError."""
    if kind == "csv":
        return
    for key, value in (("columns", options.columns), ("time_unit", options.time_unit)):
        if value:
            told = (
                "as was asked for" if options.format else "as its first line tells; or format csv"
            )
            raise ConfigError(key, value, f"none: the trace is read as {kind}, {told}")


def _rows(
    kind: TraceFormat, lines: Iterable[bytes], path: str, options: ReadOptions, tally: ReadTally
) -> Iterator[Row]:
    match kind:
        case "azure":
            return azure_rows(lines, path, options, tally)
        case "mooncake":
            return mooncake_rows(lines, path, options, tally)
        case "burstgpt":
            return burstgpt_rows(lines, path, options, tally)
        case "mileage-jsonl":
            return jsonl_rows(lines, path, tally)
        case "mileage-csv":
            return csv_rows(lines, path, tally)
        case "csv":
            return table_rows(lines, path, options, tally)
