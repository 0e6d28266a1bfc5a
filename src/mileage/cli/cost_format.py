"""Figures of `mileage cost` as people read them."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

__all__ = ["gpu_hours", "money", "plural", "share", "short_count"]

_NS_PER_HOUR: Final = 3.6e12


def gpu_hours(gpu_ns: int) -> str:
    """GPU time in hours."""
    hours = gpu_ns / _NS_PER_HOUR
    if hours >= 100.0:
        return f"{hours:,.0f}"
    if hours >= 0.01 or not gpu_ns:
        return f"{hours:.2f}"
    return f"{hours:.2g}"


def money(value: Decimal | float | None, rate: float = 1.0) -> str:
    """An amount in the bill's currency, `rate` units of it for one USD; - where it is not known."""
    if value is None:
        return "-"
    amount = float(value) * rate
    if abs(amount) >= 1000.0:
        return f"{amount:,.0f}"
    if abs(amount) >= 0.1 or not amount:
        return f"{amount:.2f}"
    return f"{amount:.2g}" if abs(amount) >= 1e-4 else f"{amount:.1e}"


def share(part: float, whole: float) -> str:
    """A part in percent; - of nothing."""
    if not whole:
        return "-"
    ratio = part / whole
    return f"{ratio:.1%}" if 0.0 < ratio < 0.0995 else f"{ratio:.0%}"


def short_count(value: float) -> str:
    """A number in at most five characters: 950, 12.3k, 4.56M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return (
                f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
            )
    return f"{value:.0f}"


def plural(count: int, thing: str) -> str:
    """1 hour, 2 hours."""
    return f"{count} {thing}" if count == 1 else f"{count:,} {thing}s"
