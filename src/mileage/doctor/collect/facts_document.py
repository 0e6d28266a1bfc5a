"""A facts document in the making: plain values under the names of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeAlias

__all__ = ["FactsDocument", "bound", "facts_document", "per_unit", "whole"]

FactsDocument: TypeAlias = dict[str, Any]
"""Sections of names and plain values, as `decode_facts` reads them; what is not known is absent."""

VALUE_MAX: Final = 1e18
"""No fact is larger: what is was read wrong."""
_SETTINGS: Final = "settings"


def facts_document(*, logs: Sequence[str] = (), **sections: Mapping[str, Any]) -> FactsDocument:
    """The sections, without what is None and without numbers that are none (infinite, NaN).

    None is kept in `settings` alone, where it says that a setting is known to be not set.
    """
    document: FactsDocument = {}
    for section, values in sections.items():
        kept = {
            name: value
            for name, value in values.items()
            if (section == _SETTINGS if value is None else _is_possible(value))
        }
        if kept:
            document[section] = kept
    if logs:
        document["logs"] = list(logs)
    return document


def per_unit(values: Sequence[float]) -> float | list[float] | None:
    """A signal of one unit as its value, of several as a list; None of none."""
    if len(values) == 1:
        return whole(values[0])
    return [whole(value) for value in values] or None


def bound(low: float | None = None, high: float | None = None) -> dict[str, float] | None:
    """A value of which only one end or both are known; None where neither is."""
    ends = {"min": low, "max": high}
    return {name: whole(end) for name, end in ends.items() if end is not None} or None


def whole(value: float) -> float:
    """The value, as an int where it is one: counts stay counts."""
    return int(value) if isfinite(value) and float(value).is_integer() else value


def _is_possible(value: object) -> bool:
    if isinstance(value, bool | str):
        return True
    if isinstance(value, int | float):
        return isfinite(value) and abs(value) <= VALUE_MAX
    if isinstance(value, Mapping):
        return bool(value) and all(_is_possible(part) for part in value.values())
    if isinstance(value, list | tuple):
        return all(_is_possible(part) for part in value)
    return False
