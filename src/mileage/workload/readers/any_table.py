"""Reads any CSV table of requests, by the names that its columns have in the field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from mileage.core.errors import ConfigError, TraceError
from mileage.core.request import Endpoint, Priority
from mileage.workload.cells import count_of, number_of, text_id
from mileage.workload.ordering import Row
from mileage.workload.read_options import ReadOptions, ReadTally, TimeUnit
from mileage.workload.table import Table
from mileage.workload.timestamps import TICKS_PER_S, ticks_of
from mileage.workload.trace_check import ARRIVED_MAX_S
from mileage.workload.trace_request import TraceRequest

__all__ = ["ALIASES", "table_rows"]

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "arrived_s": (
        "arrived", "arrival", "arrived_at", "arrival_time", "timestamp", "time", "ts", "datetime",
        "date", "created", "created_at", "start", "start_time", "request_time", "submit_time",
    ),
    "prompt_tokens": (
        "prompt_tokens", "prompt_length", "prompt_len", "input_tokens", "input_length", "input_len",
        "num_prompt_tokens", "num_prefill_tokens", "context_tokens", "contexttokens", "prefill",
        "request_tokens", "isl", "input", "prompt",
    ),
    "output_tokens": (
        "output_tokens", "output_length", "output_len", "completion_tokens", "generated_tokens",
        "generatedtokens", "generation_tokens", "num_decode_tokens", "num_output_tokens", "decode",
        "response_tokens", "osl", "output", "completion",
    ),
    "tenant": ("tenant", "tenant_id", "user", "user_id", "client", "client_id", "customer", "team"),
    "model": ("model", "model_name"),
    "endpoint": ("endpoint",),
    "output_tokens_max": ("output_tokens_max", "max_tokens", "max_output_tokens"),
    "content_id": ("content_id", "prompt_id", "prompt_hash"),
    "conversation": ("conversation", "conversation_id", "session", "session_id", "chat_id"),
    "adapter": ("adapter", "lora", "lora_name"),
    "priority": ("priority",),
    "image_patches": ("image_patches",),
    "audio_frames": ("audio_frames",),
}  # fmt: skip
"""Names that a column may have, by field; in small letters, with _ for what is between words."""

_REQUIRED: Final = ("arrived_s", "prompt_tokens", "output_tokens")
_COUNTS: Final = ("output_tokens_max", "image_patches", "audio_frames")
_UNITS: Final[Mapping[TimeUnit, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "endpoint": frozenset(get_args(Endpoint)),
    "priority": frozenset(get_args(Priority)),
}


def table_rows(
    lines: Iterable[bytes], path: str, options: ReadOptions, tally: ReadTally
) -> Iterator[Row]:
    """Each row as a request, by seconds since the first row. Raises TraceError.

    Raises ConfigError where `options.columns` names a field or a column that is not there. Columns
    of other names are not looked at.
    """
    table = Table(lines, path, forgive=tally.forgive)
    header = table.header()
    places = _places(header, path, options)
    clock = _Clock(header[places["arrived_s"]], path, options.time_unit)
    time, prompt, output = (places.pop(name) for name in _REQUIRED)
    optional = sorted(places.items())
    for number, cells in table:
        try:
            prompt_tokens = count_of(cells[prompt], header[prompt], path, number)
            output_tokens = count_of(cells[output], header[output], path, number)
            more = {}
            for field, place in optional:
                if cell := cells[place].strip():
                    more[field] = _value(field, cell, header[place], path, number)
            arrived_s = clock.seconds(cells[time], number)
        except TraceError as error:
            tally.forgive(error)
            continue
        tally.records += 1
        embeds = more.get("endpoint") == "embeddings"
        if not (prompt_tokens and (output_tokens or embeds)):
            tally.failed += 1
            if not options.keep_failed:
                continue
        request = TraceRequest(
            arrived_s=arrived_s,
            prompt_tokens=prompt_tokens or 1,
            output_tokens=output_tokens or (0 if embeds else 1),
            **more,
        )
        yield arrived_s, number, request


def _places(header: list[str], path: str, options: ReadOptions) -> dict[str, int]:
    """The place of the column of each field."""
    found: dict[str, int] = {}
    for field, column in options.columns.items():
        if field not in ALIASES:
            raise ConfigError("columns", field, f"one of {', '.join(ALIASES)}")
        if column not in header:
            raise ConfigError(f"columns.{field}", column, f"one of {', '.join(header)}")
        found[field] = header.index(column)
    names = [_plain(name) for name in header]
    for field, aliases in ALIASES.items():
        if field not in found:
            place = next((names.index(a) for a in aliases if a in names), None)
            if place is not None and place not in found.values():
                found[field] = place
    for field in _REQUIRED:
        if field not in found:
            raise TraceError(
                path,
                1,
                f"has no column for {field}: expected one of {', '.join(ALIASES[field])}, or"
                f" --columns {field}=NAME; its columns are {', '.join(header[:12])}",
            )
    return found


def _plain(name: str) -> str:
    """The name without its unit, as in ALIASES."""
    plain = name.strip().lower().replace(" ", "_").replace("-", "_")
    stem, _, unit = plain.rpartition("_")
    return stem if stem and unit in (*_UNITS, "seconds", "sec") else plain


def _value(field: str, cell: str, column: str, path: str, number: int) -> Any:
    if field in _COUNTS:
        return count_of(cell, column, path, number)
    if field in ("content_id", "conversation"):
        return text_id(cell)
    words = _WORDS.get(field)
    if words is not None and cell not in words:
        raise TraceError(
            path, number, f"{column}: got {cell[:40]!r}, expected one of {', '.join(sorted(words))}"
        )
    return cell


class _Clock:
    """Times of a column as seconds since the first of them."""

    def __init__(self, column: str, path: str, unit: TimeUnit | None) -> None:
        self._column, self._path = column, path
        ending = column.strip().lower().rpartition("_")[2]
        named = ending if ending in _UNITS else None
        self._told = unit is not None or named is not None
        self._per_s = _UNITS[unit or msgspec.convert(named or "s", TimeUnit)]
        self._origin: float | int | None = None
        self._dated = False

    def seconds(self, cell: str, number: int) -> float:
        """Raises TraceError for what is neither a number nor a date and time."""
        ticks = ticks_of(cell.strip().encode("ascii", "replace"))
        if self._origin is None:
            self._dated = ticks is not None
        if self._dated:
            if ticks is None:
                raise TraceError(
                    self._path,
                    number,
                    f"{self._column}: got {cell[:40]!r}, expected a date and time, as above",
                )
            if self._origin is None:
                self._origin = ticks
            return (ticks - self._origin) / TICKS_PER_S
        high = ARRIVED_MAX_S * (self._per_s if self._told else _UNITS["ns"])
        value = number_of(cell, self._column, self._path, number, high=high)
        if not self._told and abs(value) >= ARRIVED_MAX_S / 10:
            raise TraceError(
                self._path,
                number,
                f"{self._column}: got {cell.strip()}, which is no time in seconds: expected"
                " --time-unit ms, us or ns",
            )
        if self._origin is None:
            self._origin = value
        return (value - self._origin) / self._per_s
