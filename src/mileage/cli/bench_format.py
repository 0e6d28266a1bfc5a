"""Figures of `mileage bench` as people read them."""

from __future__ import annotations

import math
from typing import Final

from mileage.cli.simulate_format import count, percent, rate, seconds

__all__ = ["amount", "count", "energy", "latency", "memory", "percent", "rate", "usd"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def latency(value: float) -> str:
    """A time in the unit that it is read best in: microseconds, too."""
    if 0.0 < abs(value) < 0.001:
        return f"{value * 1e6:.3g} us"
    return seconds(value)


def memory(value: float) -> str:
    """Bytes."""
    for unit in _UNITS:
        if value < 1024.0 or unit == _UNITS[-1]:
            return f"{value:.3g} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1024.0
    raise AssertionError("the last unit takes all")


def energy(value: float) -> str:
    """Joules."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} MJ"
    return f"{value / 1e3:.3g} kJ" if value >= 1e3 else f"{value:.3g} J"


def usd(value: float) -> str:
    """An amount of money: whole dollars, cents, or three digits of less than a dollar, always as
    many as that, so that amounts beside each other look alike."""
    if value >= 100.0:
        return f"${value:,.0f}"
    if value >= 1.0:
        return f"${value:.2f}"
    decimals = 2 - math.floor(math.log10(value)) if value > 0.0 else 2
    return f"${value:.{decimals}f}"


def amount(value: float) -> str:
    """A number without a unit."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
