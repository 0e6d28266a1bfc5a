"""Targets and limits in force, as the workers report them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mileage.core.slo import SloConfig
from mileage.gateway.messages import GovernorReport, ReplicaStatus, Report

__all__ = ["TargetRow", "limit_of", "newest_governor", "target_rows"]


class TargetRow(msgspec.Struct, frozen=True, kw_only=True):
    """Latency targets of one model; of all that have none of their own where `model` is null."""

    model: str | None
    ttft_s: float | None
    itl_s: float | None


def newest_governor(reports: Sequence[Report]) -> GovernorReport | None:
    """The governor of the worker with the newest configuration; None where none has reported."""
    known = [report for report in reports if report.governor is not None]
    if not known:
        return None
    return max(known, key=lambda report: (report.config_version or 0, report.at_s)).governor


def limit_of(statuses: Iterable[ReplicaStatus]) -> float | None:
    """What one replica may run at once, by the parts of the workers that use it.

    None where one of them does not limit it: then nothing does.
    """
    parts = [each.limit for each in statuses if each.state != "down"]
    known = [part for part in parts if part is not None]
    return round(sum(known), 2) if known and len(known) == len(parts) else None


def target_rows(slo: SloConfig) -> list[TargetRow]:
    """The general targets, then those of models; what has no target is left out."""
    rows = [TargetRow(model=None, ttft_s=slo.ttft_s, itl_s=slo.itl_s)]
    rows += [
        TargetRow(model=model, ttft_s=own.ttft_s, itl_s=own.itl_s)
        for model, own in slo.models.items()
    ]
    return [row for row in rows if row.ttft_s is not None or row.itl_s is not None]
