"""A history as a JSON document: Mileage's own form, and that of the admin plane's series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from mileage.core.errors import ConfigError
from mileage.doctor.rca.events import Event
from mileage.doctor.rca.series import History, Series
from mileage.doctor.rca.topology import GATEWAY

__all__ = ["POINTS_MAX", "decode_history"]

POINTS_MAX: Final = 20_000
_SERIES_MAX: Final = 2_000
_JUMP_S: Final = 2.0
_REPLICA_GROUPS: Final = {
    "upstream_failures_per_s": "upstream_failures_per_s",
    "replica_in_flight": "in_flight",
    "held": "held",
    "limit": "limit",
    "running": "running",
    "waiting": "waiting",
    "kv_cache_usage_ratio": "kv_cache_usage_ratio",
}
"""Groups of the admin plane's series that are by replica: their names as figures of it."""


class _Labelled(msgspec.Struct):
    label: str
    values: list[float | None]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    node: str
    name: str
    values: list[float | None]


class _Document(msgspec.Struct):
    times_utc_s: list[float] | None = None
    start_utc_s: float | None = None
    step_s: float | None = None
    since_utc_s: float | None = None
    series: list[_Row] = []
    events: list[Event] = []
    links: list[tuple[str, str]] = []
    values: dict[str, list[float | None]] = {}
    groups: dict[str, list[_Labelled]] = {}


def decode_history(data: bytes, *, key: str = "--series") -> History:
    """The history of a document. ConfigError of `key` where it is none.

    With `times_utc_s` (one for each point, in any order) points are put on an even grid: time that
    is missing is a gap, and where a clock was set back the later reading of a point counts, and a
    note says so. NaN and infinities, as some programs write them, are gaps.
    """
    text = data.decode("utf-8", "replace")
    try:
        document = msgspec.json.decode(_without_nan(text), type=_Document)
    except msgspec.DecodeError as error:
        raise ConfigError(key, "the document", f"a history as JSON: {error}") from None
    rows = [*document.series, *_of_admin(document)]
    if len(rows) > _SERIES_MAX:
        raise ConfigError(key, len(rows), f"at most {_SERIES_MAX} series")
    if document.times_utc_s is None:
        return _even(document, rows, key)
    return _from_times(document, document.times_utc_s, rows, key)


def _even(document: _Document, rows: Sequence[_Row], key: str) -> History:
    start, step = document.start_utc_s, document.step_s
    if start is None or step is None or not (math.isfinite(start) and 0 < step < math.inf):
        raise ConfigError(key, "the document", "times_utc_s, or start_utc_s and step_s above 0")
    points = max((len(row.values) for row in rows), default=0)
    _check_points(points, key)
    series = tuple(
        Series(
            node=row.node,
            name=row.name,
            values=(*row.values, *[None] * (points - len(row.values))),
        )
        for row in rows
    )
    return _history(document, start, step, series, ())


def _from_times(document: _Document, times: list[float], rows: Sequence[_Row], key: str) -> History:
    if any(len(row.values) != len(times) for row in rows):
        raise ConfigError(key, "the document", "lists as long as times_utc_s")
    if not times or not all(math.isfinite(at) for at in times):
        raise ConfigError(key, "times_utc_s", "at least one time, and numbers only")
    gaps = np.diff(np.asarray(times))
    onward = gaps[gaps > 0]
    step = document.step_s or (float(np.median(onward)) if len(onward) else 1.0)
    if not 0 < step < math.inf:
        raise ConfigError(key, step, "step_s above 0")
    start = min(times)
    points = math.floor((max(times) - start) / step + 0.5) + 1
    _check_points(points, key)
    notes = []
    back = int((gaps < -_JUMP_S).sum())
    if back:
        notes.append(f"the clock was set back {back} times: later readings stand over earlier ones")
    if bool((gaps > 10 * step).any()):
        notes.append(f"{int((gaps > 10 * step).sum())} gaps of more than ten points")
    places = [math.floor((at - start) / step + 0.5) for at in times]
    series = []
    for row in rows:
        values: list[float | None] = [None] * points
        for place, value in zip(places, row.values, strict=True):
            if value is not None:
                values[place] = value
        series.append(Series(node=row.node, name=row.name, values=tuple(values)))
    return _history(document, start, step, tuple(series), tuple(notes))


def _history(
    document: _Document,
    start: float,
    step: float,
    series: tuple[Series, ...],
    notes: tuple[str, ...],
) -> History:
    return History(
        start_utc_s=start,
        step_s=step,
        series=series,
        since_utc_s=document.since_utc_s,
        events=tuple(sorted(document.events, key=lambda each: each.at_utc_s)),
        links=tuple(document.links),
        notes=notes,
    )


def _of_admin(document: _Document) -> list[_Row]:
    """Series of the admin plane: its `values` are the gateway's, its groups by label."""
    rows = [_Row(GATEWAY, name, values) for name, values in sorted(document.values.items())]
    for group, name in _REPLICA_GROUPS.items():
        rows += [
            _Row(f"replica:{each.label}", name, each.values)
            for each in document.groups.get(group, ())
        ]
    return rows


def _check_points(points: int, key: str) -> None:
    if points > POINTS_MAX:
        raise ConfigError(key, f"{points} points", f"at most {POINTS_MAX}: a longer step_s")


def _without_nan(text: str) -> Any:
    """JSON has no NaN, though Python writes it; a gap is null."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    import json

    try:
        tree = json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return text
    return json.dumps(tree)
