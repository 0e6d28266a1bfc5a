"""Points of a sweep: each a load, and with settings the value that is in force for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Final, TypeVar

import msgspec

from mileage.cli.bench_arguments import LoadArguments
from mileage.core.errors import ConfigError

__all__ = ["SweepPoint", "groups_of", "load_of", "number_list", "points_of", "text_list"]

T = TypeVar("T", int, float)

_POINTS_MAX: Final = 200
_AXES: Final = ("concurrency", "rate", "rate_scale")


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point. Of the three loads one at most is set; with none it is a trace's own rate."""

    value: str | None = None
    """What is in force, of --set or --values; None: nothing is changed."""
    concurrency: int | None = None
    rate: float | None = None
    rate_scale: float | None = None

    @property
    def label(self) -> str:
        """For people."""
        if self.concurrency is not None:
            load = f"{self.concurrency} client{'s' * (self.concurrency > 1)}"
        elif self.rate is not None:
            load = f"{self.rate:g}/s"
        else:
            load = "" if self.rate_scale is None else f"x {self.rate_scale:g}"
        return ", ".join(part for part in (self.value, load) if part)

    @property
    def load(self) -> float | None:
        """Where it is on the axis of load."""
        found: float | int | None = None
        for axis in _AXES:
            found = getattr(self, axis) if found is None else found
        return None if found is None else float(found)


def points_of(
    *,
    concurrency: str | None,
    rate: str | None,
    rate_scale: str | None,
    values: Sequence[str] = (),
) -> list[SweepPoint]:
    """Every value with every load, in the order in which they are given.

    Raises ConfigError for lists that are none, for two axes of load, and for fewer than two points.
    """
    given: dict[str, list[Any]] = {}
    if concurrency is not None:
        given["concurrency"] = number_list("--concurrency", concurrency, int)
    if rate is not None:
        given["rate"] = number_list("--rate", rate, float)
    if rate_scale is not None:
        given["rate_scale"] = number_list("--rate-scale", rate_scale, float)
    if len(given) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in list(given)[:2])
        raise ConfigError(second, list(given.values())[1], f"either {first} or {second}")
    loads: list[dict[str, Any]] = [{}]
    for name, numbers in given.items():
        loads = [{name: number} for number in numbers]
    settings: Sequence[str | None] = values or (None,)
    found = [SweepPoint(value=value, **load) for value in settings for load in loads]
    if len(found) < 2:
        expected = "several loads, --set or --values: a single point has no front"
        key = next((f"--{name.replace('_', '-')}" for name in given), "--concurrency")
        raise ConfigError(key, next(iter(given.values()), [None])[0], expected)
    if len(found) > _POINTS_MAX:
        raise ConfigError("points", len(found), f"at most {_POINTS_MAX}: fewer loads or settings")
    return found


def number_list(key: str, text: str, kind: Callable[[str], T]) -> list[T]:
    """Numbers above 0 between commas, each once. Raises ConfigError."""
    try:
        found = [kind(part.strip()) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < number < 1e9 for number in found):
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(key, text, f"{what} above 0 between commas, such as 1,2,4,8")
    if len(set(found)) < len(found):
        raise ConfigError(key, text, "each number once")
    return found


def text_list(key: str, text: str) -> list[str]:
    """Texts between commas, each once. Raises ConfigError."""
    found = [part.strip() for part in text.split(",")]
    if not all(found) or len(set(found)) < len(found):
        raise ConfigError(key, text, "values between commas, each once")
    return found


def groups_of(points: Sequence[SweepPoint]) -> list[list[int]]:
    """Indices of the points that share a value, in the order of the values."""
    found: dict[str | None, list[int]] = {}
    for index, point in enumerate(points):
        found.setdefault(point.value, []).append(index)
    return list(found.values())


def load_of(arguments: LoadArguments, **changes: Any) -> LoadArguments:
    """The options of one run, out of those of a command that takes several."""
    own = {field.name: getattr(arguments, field.name) for field in fields(LoadArguments)}
    return LoadArguments(**{**own, **changes})
