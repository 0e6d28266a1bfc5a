"""detect_format(): tells a trace's format from its first line."""

from __future__ import annotations

from typing import get_args

import msgspec

from mileage.core.errors import TraceError
from mileage.workload.json_line import not_json
from mileage.workload.read_options import TraceFormat
from mileage.workload.readers import azure, burstgpt

__all__ = ["detect_format"]

_SHOWN_BYTES = 60
_LEAST_COLUMNS = 3


def detect_format(first: bytes, path: str) -> TraceFormat:
    """The format of a trace that begins with this line (not an empty one). Raises TraceError."""
    text = first.strip().removeprefix(b"\xef\xbb\xbf")
    if text.startswith((b"{", b"[")):
        return _of_object(text, path)
    lower = text.lower()
    if lower == azure.HEADER or azure.is_record(text):
        return "azure"
    names = {name.strip().strip(b'"') for name in lower.split(b",")}
    if names >= burstgpt.COLUMNS:
        return "burstgpt"
    if {b"arrived_s", b"prompt_tokens"} <= names:
        return "mileage-csv"
    if len(names) > 1 and all(_is_name(name) for name in names):
        return "csv"
    raise _unknown(first, path)


def _of_object(text: bytes, path: str) -> TraceFormat:
    try:
        keys = set(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(path, 1, not_json(text, error)) from None
    if "arrived_s" in keys:
        return "mileage-jsonl"
    if {"timestamp", "input_length"} <= keys:
        return "mooncake"
    raise TraceError(
        path,
        1,
        f"has the keys {', '.join(sorted(keys)[:8])!r}: expected those of a Mooncake trace"
        " (timestamp, input_length, output_length, hash_ids) or of mileage (arrived_s,"
        " prompt_tokens, output_tokens)",
    )


def _is_name(cell: bytes) -> bool:
    return cell[:1].isalpha()


def _unknown(first: bytes, path: str) -> TraceError:
    shown = first[:_SHOWN_BYTES].decode("utf-8", "replace")
    for name, sign in (("semicolons", b";"), ("tabs", b"\t"), ("bars", b"|")):
        if first.count(sign) >= _LEAST_COLUMNS - 1 and b"," not in first:
            message = (
                f"begins with {shown!r}: expected columns with commas between them, not {name}"
            )
            return TraceError(path, 1, message)
    return TraceError(
        path,
        1,
        f"is no known trace, it begins with {shown!r}: expected a header of column names or a JSON"
        f" object; --format says which of {', '.join(get_args(TraceFormat))} it is",
    )
