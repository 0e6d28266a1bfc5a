"""Answers of Prometheus to range queries, turned back into the pages that it once read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage

__all__ = ["PromSeries", "dated_pages", "engine_records", "matrix_of", "pod_of", "target_of"]

SERIES_MAX: Final = 100_000
TARGETS_MAX: Final = 64
_OF_TARGET: Final = (
    *("job", "instance", "namespace", "pod", "container", "endpoint", "service", "node"),
    *("prometheus", "prometheus_replica", "cluster"),
)
"""Labels that Prometheus, or its operator, adds to all series of a target."""
_EXPORTED: Final = "exported_"
"""Before a label of the page that a target's own label has pushed aside."""
_TARGET: Final = ("cluster", "namespace", "pod", "instance")


class PromSeries(msgspec.Struct, frozen=True):
    """One series of a range query: `points` are Unix times and values, as they were written."""

    labels: dict[str, str]
    points: list[tuple[float, str]]

    @property
    def name(self) -> str:
        """Of the metric."""
        return self.labels.get("__name__", "")


def matrix_of(body: bytes) -> list[PromSeries]:
    """The series of an answer. Raises ValueError, which says why, for what is none."""
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"no JSON ({error})") from None
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        said = answer.get("error") if isinstance(answer, Mapping) else None
        raise ValueError(str(said)[:300] if said else "no answer of a Prometheus")
    data = answer.get("data")
    rows = data.get("result") if isinstance(data, Mapping) else None
    if not isinstance(rows, list) or len(rows) > SERIES_MAX:
        raise ValueError(f"no list of at most {SERIES_MAX} series")
    try:
        return [
            PromSeries(
                msgspec.convert(row["metric"], dict[str, str]),
                msgspec.convert(row["values"], list[tuple[float, str]]),
            )
            for row in rows
        ]
    except (msgspec.ValidationError, LookupError, TypeError):
        raise ValueError("no matrix: a range query answers with one") from None


def target_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """What was scraped, for telling one target's series from another's."""
    return tuple(labels.get(name, "") for name in _TARGET)


def pod_of(labels: Mapping[str, str]) -> str:
    """The pod that a series is about: that of the page where it names one."""
    return labels.get("exported_pod") or labels.get("pod") or ""


def engine_records(series: Sequence[PromSeries], *, place: str) -> list[EngineRecord]:
    """For each target the pages that an engine would have shown at each time, without their HELP.

    Of more than 64 targets the first by name.
    """
    by_target: dict[tuple[str, ...], list[PromSeries]] = {}
    for each in series:
        by_target.setdefault(target_of(each.labels), []).append(each)
    records = []
    for target, own in sorted(by_target.items())[:TARGETS_MAX]:
        pages = tuple(
            RecordedPage(at_s=at_s, at_utc_s=at_s, path="/metrics", text=text)
            for at_s, text in dated_pages(own)
        )
        name = next((part for part in target[2:] if part), "target")
        records.append(EngineRecord(url=f"{name} in {place}", pages=pages))
    return records


def dated_pages(series: Iterable[PromSeries]) -> list[tuple[float, str]]:
    """Pages in the exposition format by time, without what Prometheus adds to their labels."""
    lines: dict[float, list[str]] = {}
    for each in series:
        head = _head(each)
        for at_s, value in each.points:
            lines.setdefault(at_s, []).append(f"{head} {value}")
    return [(at_s, "\n".join(lines[at_s]) + "\n") for at_s in sorted(lines)]


def _head(series: PromSeries) -> str:
    own = {
        name: value
        for name, value in series.labels.items()
        if name not in _OF_TARGET and name != "__name__" and not name.startswith(_EXPORTED)
    }
    for name, value in series.labels.items():
        if name.startswith(_EXPORTED):
            own[name.removeprefix(_EXPORTED)] = value
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in own.items())
    return f"{series.name}{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
