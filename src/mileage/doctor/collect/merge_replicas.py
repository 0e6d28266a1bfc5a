"""Several replicas of one deployment as one facts document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.merge_facts import overlay

__all__ = ["merge_replicas"]

_WEIGHT: Final = "requests_completed_count"


def merge_replicas(documents: Sequence[FactsDocument]) -> FactsDocument:
    """One document: signals are lists, one value for each replica (or rank of one) that has it.

    A setting counts where all replicas that tell it agree; lengths of requests are means, weighted
    by requests where those are known; accelerators add up. The order of replicas is kept in every
    list. One replica is what it is.
    """
    if len(documents) < 2:
        return dict(documents[0]) if documents else {}
    agreed = {
        section: _agreed([document.get(section, {}) for document in documents])
        for section in ("engine", "model", "hardware", "settings", "topology")
    }
    counts = [document.get("hardware", {}).get("count") for document in documents]
    if all(isinstance(count, int) for count in counts):
        agreed["hardware"]["count"] = sum(counts)
    agreed["topology"]["replicas"] = len(documents)
    lists: list[FactsDocument] = [
        {name: document[name] for name in ("logs", "comparisons") if name in document}
        for document in documents
    ]
    return overlay(
        facts_document(
            engine=agreed["engine"],
            model=agreed["model"],
            hardware=agreed["hardware"],
            settings=agreed["settings"],
            workload=_workload(documents),
            signals=_signals([document.get("signals", {}) for document in documents]),
            topology=agreed["topology"],
        ),
        *lists,
    )


def _agreed(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Values that every part which has the name gives alike."""
    found: dict[str, Any] = {}
    for name in {name: None for part in parts for name in part}:
        values = [part[name] for part in parts if name in part]
        if all(value == values[0] for value in values):
            found[name] = values[0]
    return found


def _signals(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in {name: None for part in parts for name in part}:
        units = [unit for part in parts if name in part for unit in _units(part[name])]
        if units and not any(isinstance(unit, bool) for unit in units):
            found[name] = units[0] if len(units) == 1 else units
        elif units and all(unit == units[0] for unit in units):
            found[name] = units[0]
    return found


def _units(value: Any) -> list[Any]:
    """The values of one replica: of a series its mean, where it has no bounds."""
    if isinstance(value, list):
        return value
    if not isinstance(value, Mapping) or "series" not in value:
        return [value]
    points = [point["value"] for point in value["series"]]
    numbers = [point for point in points if isinstance(point, int | float)]
    return [sum(numbers) / len(numbers)] if numbers and len(numbers) == len(points) else []


def _workload(documents: Sequence[FactsDocument]) -> dict[str, Any]:
    parts = [document.get("workload", {}) for document in documents]
    weights = [document.get("signals", {}).get(_WEIGHT) for document in documents]
    found = _agreed(parts)
    for name in ("isl_tokens", "osl_tokens"):
        known = [
            (part[name], weight)
            for part, weight in zip(parts, weights, strict=True)
            if isinstance(part.get(name), int | float)
        ]
        if name in found or len(known) < 2:
            continue
        weighted = [(v, w) for v, w in known if isinstance(w, int | float) and w > 0]
        pairs = weighted if len(weighted) == len(known) else [(value, 1) for value, _ in known]
        found[name] = sum(v * w for v, w in pairs) / sum(w for _, w in pairs)
    return found
