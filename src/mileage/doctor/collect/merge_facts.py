"""Facts of one deployment from several sources: which one counts, where each came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, Literal

import msgspec

from mileage.doctor.collect.facts_document import FactsDocument

__all__ = ["FactConflict", "MergedFacts", "SourcedFacts", "Standing", "merge_facts", "overlay"]

Standing = Literal["measured", "reported", "configured", "default"]
"""What a source's facts are: measured; what the engine says it runs with; what it was told to run
with; what its documentation says it does where it is told nothing."""

_ORDER: Final[Mapping[Standing, int]] = {
    "measured": 0,
    "reported": 1,
    "configured": 2,
    "default": 3,
}
_AGREE_RATIO: Final = 0.02
"""Two measurements of one figure that differ by no more than this share say the same."""
_LISTS: Final = ("logs", "comparisons")
_CHANGING: Final = ("signals", "workload")


class SourcedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A facts document and where it is from, in words: `vLLM metrics of http://host:8000`."""

    source: str
    standing: Standing
    document: FactsDocument


class FactConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two sources that cannot both be right about a fact; the value that was kept comes first."""

    fact: str
    """Section and name: `settings.block_size`."""
    kept: Any
    kept_source: str
    other: Any
    other_source: str

    def __str__(self) -> str:
        return (
            f"{self.fact}: {self.kept!r} by {self.kept_source}, "
            f"{self.other!r} by {self.other_source}"
        )


class MergedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One document; `sources` has the source of each fact, by section and name."""

    document: FactsDocument
    sources: dict[str, str]
    conflicts: tuple[FactConflict, ...]


def merge_facts(parts: Iterable[SourcedFacts]) -> MergedFacts:
    """Of each fact the value of the source that stands highest; among equals the earlier one.

    Measured goes before reported, that before configured, that before a default. A value within a
    higher source's bound makes it exact. Values that cannot both be true are told as conflicts, but
    for defaults, which are there to be overruled, and for signals and the workload: two sources
    watched them at different times. Log lines come one after another, each once, and comparisons.
    """
    ordered = sorted(parts, key=lambda part: _ORDER[part.standing])
    document: FactsDocument = {}
    sources: dict[str, str] = {}
    conflicts: list[FactConflict] = []
    for part in ordered:
        for section, values in part.document.items():
            if section in _LISTS:
                document[section] = _joined(document.get(section, []), values)
                continue
            kept = document.setdefault(section, {})
            for name, value in values.items():
                fact = f"{section}.{name}"
                if name not in kept:
                    kept[name], sources[fact] = value, part.source
                elif not _agree(kept[name], value):
                    if part.standing != "default" and section not in _CHANGING:
                        conflicts.append(
                            FactConflict(
                                fact=fact,
                                kept=kept[name],
                                kept_source=sources[fact],
                                other=value,
                                other_source=part.source,
                            )
                        )
                elif _is_bound(kept[name]) and _is_number(value):
                    kept[name], sources[fact] = value, part.source
    return MergedFacts(document=document, sources=sources, conflicts=tuple(conflicts))


def overlay(*documents: Mapping[str, Any]) -> FactsDocument:
    """The facts of all documents of one source; of a fact that several have, the first's."""
    document: FactsDocument = {}
    for part in documents:
        for section, values in part.items():
            if section in _LISTS:
                document[section] = _joined(document.get(section, []), values)
            else:
                document[section] = {**values, **document.get(section, {})}
    return document


def _joined(before: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    found = list(before)
    seen = {item for item in found if isinstance(item, str)}
    for item in more:
        if not isinstance(item, str) or item not in seen:
            found.append(item)
        if isinstance(item, str):
            seen.add(item)
    return found


def _agree(a: object, b: object) -> bool:
    """Can both be true? Numbers within 2 % of each other can, and bounds that overlap."""
    first, second = _span(a), _span(b)
    if first is None or second is None:
        return a == b or isinstance(a, list) or isinstance(b, list) or _is_series(a, b)
    slack = (
        _AGREE_RATIO * max(abs(end) for end in (*first, *second) if abs(end) != inf)
        if (_is_number(a) and _is_number(b))
        else 0.0
    )
    return first[0] <= second[1] + slack and second[0] <= first[1] + slack


def _is_series(*values: object) -> bool:
    return any(isinstance(value, Mapping) and "series" in value for value in values)


def _span(value: object) -> tuple[float, float] | None:
    if _is_number(value):
        assert isinstance(value, int | float)
        return float(value), float(value)
    if _is_bound(value):
        assert isinstance(value, Mapping)
        return float(value.get("min", -inf)), float(value.get("max", inf))
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_bound(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and set(value) <= {"min", "max"}
