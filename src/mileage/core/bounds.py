"""Bounds of configuration values: each check raises a ConfigError that names the key.

`note` is added to what is said to be expected.
"""

from __future__ import annotations

import math

from mileage.core.errors import ConfigError

__all__ = ["require_at_least", "require_positive", "require_range", "require_up_to"]


def require_at_least(key: str, value: float, low: float, *, note: str = "") -> None:
    """Refuse a value below `low`, and one that is no finite number."""
    if not low <= value < math.inf:
        raise ConfigError(key, value, f"at least {low}{note}")


def require_positive(key: str, value: float, unit: str = "seconds") -> None:
    """Refuse a value that is not a positive, finite number."""
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(key, value, f"a positive number of {unit}")


def require_range(key: str, value: float, low: float, high: float, *, note: str = "") -> None:
    """Refuse a value outside low..high."""
    if not low <= value <= high:
        raise ConfigError(key, value, f"{low}..{high}{note}")


def require_up_to(key: str, value: float, high: float) -> None:
    """Refuse a value that is not above 0 and at most `high`, which must be finite itself."""
    if not 0 < value <= high < math.inf:
        raise ConfigError(key, value, f"above 0, up to {high}")
