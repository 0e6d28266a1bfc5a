"""Bounds of configuration values: each check raises a ConfigError that names the key."""

from __future__ import annotations

import math

from mileage.core.errors import ConfigError

__all__ = ["require_positive", "require_range"]


def require_range(key: str, value: float, low: float, high: float) -> None:
    """Refuse a value outside low..high."""
    if not low <= value <= high:
        raise ConfigError(key, value, f"{low}..{high}")


def require_positive(key: str, value: float, unit: str = "seconds") -> None:
    """Refuse a value that is not a positive, finite number."""
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(key, value, f"a positive number of {unit}")
