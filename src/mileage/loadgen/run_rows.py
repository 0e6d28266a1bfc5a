"""Rows of a run: one per request, as CSV or Parquet, for other tools."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, Final, Literal

from mileage.core.errors import ConfigError
from mileage.measure.call_record import CallRecord
from mileage.measure.record_latency import gaps_of, latencies

__all__ = ["COLUMNS", "csv_rows", "require_parquet", "write_parquet"]

_CHUNK: Final = 10_000
"""Rows that are made at once: memory does not grow with the run's."""
_Kind = Literal["int", "float", "str", "bool"]

_FIELDS: Final[tuple[tuple[str, _Kind], ...]] = (
    ("index", "int"),
    ("phase", "str"),
    ("outcome", "str"),
    ("target", "int"),
    ("arm", "str"),
    ("block", "int"),
    ("endpoint", "str"),
    ("stream", "bool"),
    ("tenant", "str"),
    ("model", "str"),
    ("adapter", "str"),
    ("status", "int"),
    ("error", "str"),
    ("attempts", "int"),
    ("scheduled_s", "float"),
    ("taken_s", "float"),
    ("connected_s", "float"),
    ("sent_s", "float"),
    ("answered_s", "float"),
    ("ended_s", "float"),
    ("planned_prompt_tokens", "int"),
    ("planned_output_tokens", "int"),
    ("prompt_tokens", "int"),
    ("cached_tokens", "int"),
    ("output_tokens", "int"),
    ("request_id", "str"),
)
_FIGURES: Final[tuple[tuple[str, _Kind], ...]] = (
    ("lag_s", "float"),
    ("first_token_s", "float"),
    ("last_token_s", "float"),
    ("token_events", "int"),
    ("ttft_s", "float"),
    ("tpot_s", "float"),
    ("itl_mean_s", "float"),
    ("itl_p99_s", "float"),
    ("e2e_s", "float"),
)
COLUMNS: Final = tuple(name for name, _ in (*_FIELDS, *_FIGURES))
"""Names of the columns in their order: fields of CallRecord, then figures by the definitions of
mileage.measure. What was not seen is empty, or null."""


def csv_rows(records: Sequence[CallRecord]) -> Iterator[bytes]:
    """A header and a row a request, each with its end (RFC 4180, in UTF-8)."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow(COLUMNS)
    for columns in _chunks(records):
        table.writerows(zip(*columns, strict=True))
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()


def require_parquet(key: str = "parquet") -> Any:
    """pyarrow, where it is installed. Raises ConfigError, of `key`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(key, None, "pyarrow: pip install 'mileage[parquet]'") from None
    return pyarrow


def write_parquet(file: BinaryIO, records: Sequence[CallRecord], *, key: str = "parquet") -> None:
    """The same rows; of the times of tokens there is the list `token_times_s` besides.

    Raises ConfigError, of `key`, where pyarrow is not installed, and OSError where the file cannot
    be written.
    """
    arrow = require_parquet(key)
    kinds: dict[_Kind, Callable[[], Any]] = {
        "int": arrow.int64,
        "float": arrow.float64,
        "str": arrow.string,
        "bool": arrow.bool_,
    }
    times_kind = arrow.list_(arrow.float64())
    fields = [(name, kinds[kind]()) for name, kind in (*_FIELDS, *_FIGURES)]
    schema = arrow.schema([*fields, ("token_times_s", times_kind)])
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        whole = iter(records)
        for columns in _chunks(records):
            times = [record.token_times_s for record in islice(whole, len(columns[0]))]
            arrays = [
                arrow.array(column, type=kind)
                for column, (_, kind) in zip(columns, fields, strict=True)
            ]
            arrays.append(arrow.array(times, type=times_kind))
            writer.write_batch(arrow.record_batch(arrays, schema=schema))


def _chunks(records: Sequence[CallRecord]) -> Iterator[list[list[Any]]]:
    """Columns of some rows after the other; None is what was not seen."""
    for first in range(0, len(records), _CHUNK):
        part = records[first : first + _CHUNK]
        seen = latencies(part)
        gaps = gaps_of(part)
        spans_s = (seen.last_s - seen.first_s).tolist()
        events = seen.events.tolist()
        figures: list[list[Any]] = [
            [None if r.taken_s is None else r.taken_s - r.scheduled_s for r in part],
            seen.first_s.tolist(),
            seen.last_s.tolist(),
            [n if record.stream else None for n, record in zip(events, part, strict=True)],
            seen.ttft_s.tolist(),
            seen.tpot_s.tolist(),
            [s / (n - 1) if n > 1 else None for s, n in zip(spans_s, events, strict=True)],
            gaps.request_p99_s.tolist(),
            seen.e2e_s.tolist(),
        ]
        yield [
            *([getattr(record, name) for record in part] for name, _ in _FIELDS),
            *([_known(value) for value in column] for column in figures),
        ]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
