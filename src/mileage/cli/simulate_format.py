"""Figures as people read them: times, shares, money, rates."""

from __future__ import annotations

__all__ = ["count", "percent", "rate", "seconds", "usd"]


def seconds(value: float) -> str:
    """A time in the unit that it is read best in."""
    if value >= 100.0:
        return f"{value:,.0f} s"
    return f"{value:.3g} s" if value >= 1.0 else f"{value * 1e3:.3g} ms"


def percent(value: float) -> str:
    """A share."""
    return f"{value:.1%}"


def usd(value: float) -> str:
    """An amount of money."""
    return f"${value:.4g}"


def count(value: float) -> str:
    """A whole number."""
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """Something per second."""
    return f"{value:,.0f}/s" if value >= 100.0 else f"{value:.3g}/s"
