"""difference(): what an existing deployment does otherwise than its plan, ordered by its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from mileage.core.errors import ConfigError
from mileage.planner.candidate import Candidate

__all__ = ["Checked", "Cost", "CostOf", "Difference", "difference"]


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What serving costs with a set-up that is as busy as it may be. None: it cannot be said."""

    usd_per_hour: float | None = None
    """Of the whole fleet."""
    usd_per_mtok: float | None = None
    """Of output tokens."""
    gpu_h_per_mtok: float | None = None
    problem: str | None = None
    """Why there is no figure."""


CostOf: TypeAlias = Callable[[Candidate], Cost]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that differs, and what it would bring to set it as planned, all others left."""

    field: str
    """Of `Candidate`."""
    existing: Any
    planned: Any
    saving_ratio: float | None
    """Of the cost of a token; below 0 it costs more, taken alone. None: it cannot be said."""
    saving_usd_per_mtok: float | None
    saving_usd_per_hour: float | None
    """Of the existing fleet's price: for the same traffic so much less has to be paid."""
    problem: str | None = None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """An existing deployment against what was planned."""

    existing: Candidate
    """What is not known of it is taken to be as planned."""
    unknown: tuple[str, ...]
    existing_cost: Cost
    planned_cost: Cost
    saving_ratio: float | None
    """Of all differences together."""
    saving_usd_per_hour: float | None
    differences: tuple[Difference, ...]
    """What saves most comes first, and what cannot be said last."""


def difference(known: Mapping[str, Any], planned: Candidate, cost_of: CostOf) -> Checked:
    """`known`: fields of `Candidate` as they are, those that are known. Each difference is undone
    by itself: what several bring is not their sum.

    Costs are compared in USD where both are known, else in GPU-hours. Raises ConfigError for
    values that no set-up has.
    """
    existing = msgspec.structs.replace(planned, **known)
    cost = cost_of(existing)
    found = [
        _difference(field, existing, planned, cost, cost_of)
        for field in Candidate.__struct_fields__
        if field in known and getattr(existing, field) != getattr(planned, field)
    ]
    goal = cost if not found else cost_of(planned)
    ratio = _saving_ratio(cost, goal)
    order = {each.field: place for place, each in enumerate(found)}
    return Checked(
        existing=existing,
        unknown=tuple(field for field in Candidate.__struct_fields__ if field not in known),
        existing_cost=cost,
        planned_cost=goal,
        saving_ratio=ratio,
        saving_usd_per_hour=_of(ratio, cost.usd_per_hour),
        differences=tuple(
            sorted(
                found,
                key=lambda each: (
                    each.saving_ratio is None,
                    -(each.saving_ratio or 0.0),
                    order[each.field],
                ),
            )
        ),
    )


def _difference(
    field: str, existing: Candidate, planned: Candidate, cost: Cost, cost_of: CostOf
) -> Difference:
    value = getattr(planned, field)
    try:
        other = msgspec.structs.replace(existing, **{field: value})
    except ConfigError as error:  # it needs another of the differences undone, too
        undone = Cost(problem=str(error))
    else:
        undone = cost_of(other)
    ratio = _saving_ratio(cost, undone)
    return Difference(
        field=field,
        existing=getattr(existing, field),
        planned=value,
        saving_ratio=ratio,
        saving_usd_per_mtok=_minus(cost.usd_per_mtok, undone.usd_per_mtok),
        saving_usd_per_hour=_of(ratio, cost.usd_per_hour),
        problem=undone.problem if ratio is None else None,
    )


def _saving_ratio(cost: Cost, other: Cost) -> float | None:
    for before, after in (
        (cost.usd_per_mtok, other.usd_per_mtok),
        (cost.gpu_h_per_mtok, other.gpu_h_per_mtok),
    ):
        if before and after is not None:
            return 1.0 - after / before
    return None


def _minus(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else before - after


def _of(ratio: float | None, value: float | None) -> float | None:
    return None if ratio is None or value is None else ratio * value
