"""Reads the Azure LLM inference traces of 2023 and 2024: TIMESTAMP,ContextTokens,GeneratedTokens.

Format: github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and ...2024.md. The
former has times of 100 ns without a zone, the latter of 1 us with one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mileage.core.errors import TraceError
from mileage.workload.ordering import Row
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.timestamps import TICKS_PER_S, ticks_of
from mileage.workload.trace_request import TraceRequest

__all__ = ["HEADER", "azure_figures", "azure_rows", "is_record"]

HEADER: Final = b"timestamp,contexttokens,generatedtokens"
"""In lower case."""

_POINT: Final = ord(".")
_DIGITS_MAX: Final = 9
_LENGTH_2023: Final = len("2023-11-16 18:15:46.6805900")
_LENGTH_2024: Final = len("2024-05-10 00:00:00.009930+00:00")


def azure_figures(
    lines: Iterable[bytes],
    path: str,
    forgive: Callable[[TraceError], None] | None = None,
) -> Iterator[tuple[int, int, int, int]]:
    """(line, ticks of arrival since 1970, prompt tokens, output tokens) of each record.

    Tokens may be 0. Raises TraceError; with `forgive`, only where that does when it is given the
    error: else the record is left out. Minutes are looked up in a calendar only when they change:
    about a microsecond a record.
    """
    minute, minute_ticks = b"", 0
    for number, line in enumerate(lines, 1):
        try:
            parts = line.rstrip().split(b",")
            if len(parts) != 3:
                if not line.strip():
                    continue
                raise TraceError(path, number, f"has {len(parts)} fields: expected {_names()}")
            stamp, prompt, output = parts
            ticks = -1
            if len(stamp) == _LENGTH_2023:
                digits, finest = stamp[17:19] + stamp[20:27], 1
            elif len(stamp) == _LENGTH_2024 and stamp[26:] == b"+00:00":
                digits, finest = stamp[17:19] + stamp[20:26], 10
            else:
                digits, finest = b"", 1
            if digits.isdigit() and stamp[19] == _POINT:
                if stamp[:17] != minute:
                    minute = stamp[:17]
                    minute_ticks = ticks_of(minute + b"00") or 0
                if minute_ticks > 0:
                    ticks = int(digits) * finest
                    ticks = minute_ticks + ticks if ticks < 60 * TICKS_PER_S else -1
            if ticks < 0:
                if number == 1 and _is_header(line):
                    continue
                ticks = _slow_ticks(stamp, path, number)
            if not (prompt.isdigit() and len(prompt) <= _DIGITS_MAX):
                raise _no_count(path, number, "ContextTokens", prompt)
            if not (output.isdigit() and len(output) <= _DIGITS_MAX):
                raise _no_count(path, number, "GeneratedTokens", output)
        except TraceError as error:
            if forgive is None:
                raise
            forgive(error)
            continue
        yield number, ticks, int(prompt), int(output)


def azure_rows(
    lines: Iterable[bytes], path: str, options: ReadOptions, tally: ReadTally
) -> Iterator[Row]:
    """Each record as a request, by seconds since the first record. Raises TraceError."""
    origin = None
    for number, ticks, prompt, output in azure_figures(lines, path, tally.forgive):
        if origin is None:
            origin = ticks
        tally.records += 1
        if not (prompt and output):
            tally.failed += 1
            if not options.keep_failed:
                continue
        arrived_s = (ticks - origin) / TICKS_PER_S
        request = TraceRequest(
            arrived_s=arrived_s, prompt_tokens=prompt or 1, output_tokens=output or 1
        )
        yield arrived_s, number, request


def is_record(line: bytes) -> bool:
    """The line is a record: a trace whose header was cut off begins with one."""
    parts = line.split(b",")
    return len(parts) == 3 and ticks_of(parts[0].strip()) is not None


def _is_header(line: bytes) -> bool:
    return line.strip().removeprefix(b"\xef\xbb\xbf").lower() == HEADER


def _slow_ticks(stamp: bytes, path: str, number: int) -> int:
    ticks = ticks_of(stamp.strip())
    if ticks is None:
        shown = stamp[:40].decode("utf-8", "replace")
        raise TraceError(
            path, number, f"TIMESTAMP: got {shown!r}, expected a time as 2023-11-16 18:15:46.68059"
        )
    return ticks


def _no_count(path: str, number: int, name: str, text: bytes) -> TraceError:
    shown = text[:40].decode("utf-8", "replace")
    return TraceError(
        path, number, f"{name}: got {shown!r}, expected a whole number of tokens, 0..{10**9 - 1}"
    )


def _names() -> str:
    return "TIMESTAMP,ContextTokens,GeneratedTokens"
