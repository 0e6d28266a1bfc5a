"""Cells of a table as values; each fault names the file, line and column."""

from __future__ import annotations

import hashlib
import math

from mileage.core.errors import TraceError
from mileage.workload.trace_check import TOKENS_MAX

__all__ = ["count_of", "number_of", "text_id"]

_DIGITS_MAX = 18


def count_of(cell: str, column: str, path: str, line: int, *, high: int = TOKENS_MAX) -> int:
    """A whole number, 0..high; 374.0 is one too, as tables with gaps have it. Raises TraceError."""
    text = cell.strip()
    if text.endswith(".0"):
        text = text[:-2]
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        count = int(text)
        if count <= high:
            return count
    raise TraceError(
        path, line, f"{column}: got {_shown(cell)}, expected a whole number, 0..{high}"
    )


def number_of(cell: str, column: str, path: str, line: int, *, high: float) -> float:
    """A finite number, -high..high. Raises TraceError."""
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not -high <= number <= high or "_" in cell:
        raise TraceError(
            path, line, f"{column}: got {_shown(cell)}, expected a number of at most {high:g}"
        )
    return number


def text_id(cell: str) -> int | None:
    """A number that stands for the text: itself where it is one, else a hash; None for none."""
    text = cell.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return int(text)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}...")
