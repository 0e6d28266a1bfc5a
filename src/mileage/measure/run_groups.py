"""Figures of a run by what its requests differ in: tenant, model, adapter, target, arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from mileage.core.slo import Slo
from mileage.measure.call_record import CallRecord
from mileage.measure.run_figures import RunFigures, run_figures

__all__ = ["OTHER", "GroupKey", "figures_by", "group_of"]

GroupKey = Literal["tenant", "model", "adapter", "target", "arm", "endpoint"]

OTHER = "(other)"
"""Stands for every group past the bound."""


def group_of(record: CallRecord, key: GroupKey) -> str:
    """The group that a request belongs to; empty where it has none, such as no adapter."""
    value = getattr(record, key)
    return "" if value is None else str(value)


def figures_by(
    records: Sequence[CallRecord],
    key: GroupKey,
    *,
    start_s: float,
    end_s: float,
    slo: Slo,
    groups_max: int = 100,
) -> dict[str, RunFigures]:
    """Figures of each group, the one with most requests first (those of a kind by name).

    At most `groups_max` (1 or more) groups have their own; the rest are `OTHER` together, so the
    counts add up to those of the run. Raises ValueError as `run_figures` does.
    """
    sizes = Counter(group_of(r, key) for r in records)
    names = sorted(sizes, key=lambda name: (-sizes[name], name))
    if len(names) > groups_max:
        names = [*names[: max(0, groups_max - 1)], OTHER]
    groups: dict[str, list[CallRecord]] = {name: [] for name in names}
    for record in records:
        groups.get(group_of(record, key), groups.get(OTHER, [])).append(record)
    return {
        name: run_figures(own, start_s=start_s, end_s=end_s, slo=slo)
        for name, own in groups.items()
    }
