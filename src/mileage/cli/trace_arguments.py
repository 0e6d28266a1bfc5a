"""What options of a command line mean for a trace: how it is read, and which part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from mileage.core.errors import ConfigError
from mileage.workload.read_options import ReadOptions
from mileage.workload.synthetic.spelling import seconds_of
from mileage.workload.transforms import TraceView

__all__ = ["columns_of_options", "read_options", "trace_part", "window_of"]

T = TypeVar("T")

_OPTIONS: Final = {
    "format": "--format",
    "columns": "--columns",
    "time_unit": "--time-unit",
    "block_tokens": "--block-tokens",
    "spread": "--spread",
    "spread_max_s": "--spread-max",
    "start_s": "--window",
    "duration_s": "--window",
    "sample_ratio": "--sample",
    "rate_scale": "--rate-scale",
    "head": "--head",
}


def read_options(**given: Any) -> ReadOptions:
    """ReadOptions of what was given; None is its default. Raises ConfigError by option."""
    return _made(ReadOptions, given)


def trace_part(**given: Any) -> TraceView:
    """TraceView of what was given; None is its default. Raises ConfigError by option."""
    return _made(TraceView, given)


def columns_of_options(texts: Sequence[str]) -> dict[str, str]:
    """`field=column` of each; raises ConfigError."""
    found = {}
    for text in texts:
        field, equals, column = text.partition("=")
        if not (field and equals and column):
            raise ConfigError("--columns", text, "FIELD=COLUMN, such as prompt_tokens=n_in")
        found[field.strip()] = column.strip()
    return found


def window_of(text: str | None) -> dict[str, float]:
    """START:DURATION, START: or :DURATION as fields of TraceView. Raises ConfigError."""
    if text is None:
        return {}
    start, colon, duration = text.partition(":")
    if not colon or not (start or duration):
        raise ConfigError("--window", text, "START:DURATION, such as 10m:1h")
    found = {}
    if start:
        found["start_s"] = seconds_of("--window", start)
    if duration:
        found["duration_s"] = seconds_of("--window", duration)
    return found


def _made(kind: Callable[..., T], given: Mapping[str, Any]) -> T:
    values = {name: value for name, value in given.items() if value is not None}
    try:
        return kind(**values)
    except ConfigError as error:
        key = _OPTIONS.get(error.key, error.key)
        raise ConfigError(key, error.value, error.expected) from None
