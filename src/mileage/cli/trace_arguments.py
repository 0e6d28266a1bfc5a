"""What options of a command line mean for a trace: how it is read, and which part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from mileage.core.errors import ConfigError
from mileage.workload.read_options import ReadOptions
from mileage.workload.synthetic.spelling import seconds_of
from mileage.workload.transforms import TraceView

__all__ = [
    "columns_of_options",
    "read_options",
    "refuse_file_options",
    "told_by_option",
    "trace_part",
    "window_of",
]

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
    "bad_max": "--bad-lines-max",
}
_OF_FILES: Final = ("format", "columns", "time_unit", "spread")


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


def refuse_file_options(options: ReadOptions, what: str) -> None:
    """Options that are for files of lines are not ignored elsewhere. Raises ConfigError."""
    plain = ReadOptions()
    for name in _OF_FILES:
        value = getattr(options, name)
        if value != getattr(plain, name):
            raise _by_option(ConfigError(name, value, f"none: the trace is {what}"))


def told_by_option(requests: Iterable[T]) -> Iterator[T]:
    """The same; a ConfigError on the way, of a field of ReadOptions, is of its option."""
    try:
        yield from requests
    except ConfigError as error:
        raise _by_option(error) from None


def _by_option(error: ConfigError) -> ConfigError:
    name, point, field = error.key.partition(".")
    key = _OPTIONS.get(name)
    if key is None:
        return error
    value = error.value
    if isinstance(value, Mapping):
        value = ",".join(f"{field}={column}" for field, column in value.items())
    return ConfigError(f"{key} {field}" if point else key, value, error.expected)


def _made(kind: Callable[..., T], given: Mapping[str, Any]) -> T:
    values = {name: value for name, value in given.items() if value is not None}
    try:
        return kind(**values)
    except ConfigError as error:
        raise _by_option(error) from None
