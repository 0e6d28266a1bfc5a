"""Quantities of Kubernetes (`500m`, `2`, `1Gi`), durations and times, exactly."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from mileage.doctor.collect.facts_document import whole

__all__ = ["duration_s", "quantity", "time_s"]

_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))(?:[eE]([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)
_EXPONENT_MAX: Final = 30
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(h|ms|m|us|µs|ns|s)")
_SECONDS: Final = {
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}


def quantity(value: object) -> float | None:
    """A quantity in its base unit (cores, bytes, a count); None for what is none.

    Computed as a fraction: `100m` is 0.1 to the last bit. A whole number comes as an int.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    written = value.strip() if isinstance(value, str) else _written(value)
    match = _QUANTITY.fullmatch(written)
    if match is None:
        return None
    exponent = int(match[2] or 0)
    if abs(exponent) > _EXPONENT_MAX:
        return None
    exact = Fraction(match[1].rstrip(".") or "0") * Fraction(10) ** exponent
    return whole(float(exact * _SUFFIXES[match[3] or ""]))


def duration_s(value: object) -> float | None:
    """Seconds of a duration as Go writes them (`1h30m`, `15s`), or of a bare number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    written = value.strip() if isinstance(value, str) else _written(value)
    parts = list(_DURATION.finditer(written))
    if parts and "".join(part.group() for part in parts) == written:
        total = sum((Fraction(part[1]) * _SECONDS[part[2]] for part in parts), Fraction(0))
        return whole(float(total))
    return quantity(written) if re.fullmatch(r"\d+(\.\d+)?", written) else None


def time_s(value: object) -> float | None:
    """Seconds since 1970 of a time as the API writes it: `2025-01-31T08:00:00Z`."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        read = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    if read.tzinfo is None:
        read = read.replace(tzinfo=UTC)
    try:
        return read.timestamp()
    except (OverflowError, ValueError):
        return None


def _written(value: float) -> str:
    if isinstance(value, int) and abs(value) >= 10**40:
        return ""
    return repr(value)
