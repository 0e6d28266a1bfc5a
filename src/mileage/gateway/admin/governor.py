"""Governor: one document of what it holds, limits, decided and refused, over all workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from mileage.control.config import GovernorMode, LimitPolicyName
from mileage.control.governor_state import GovernorState
from mileage.gateway.admin.fleet import Fleet
from mileage.gateway.admin.spend import BudgetRow, TenantRow, budget_rows, tenant_rows
from mileage.gateway.admin.targets import TargetRow, newest_governor, target_rows
from mileage.gateway.knob_status import KnobEvent
from mileage.gateway.messages import Report
from mileage.measure.metrics import FamilySnapshot

__all__ = ["DecisionRow", "FailureRow", "GovernorStatus", "governor_status"]

_DECISIONS_MAX = 100
_TOGETHER_S = 1.0
"""Refusals of a kind that several workers made this close together are one row."""


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One decision; see `mileage.control.decisions.Decision`.

    `limit_before` is null for the oldest that is known of a replica. `worker` is the process that
    decided; null for refusals of several. engine: something happened with an engine whose own
    limits are set; `subject` is the replica, `reason` says what.
    """

    at_utc_s: float
    kind: Literal["limit", "refused", "failed", "engine"]
    subject: str
    reason: str
    detail: str | None
    limit: int | None
    limit_before: int | None
    count: int
    worker: int | None


class FailureRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker whose governor has failed: it lets everything through."""

    worker: int
    failure: str


class GovernorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The governor over all workers. Null: no worker has reported.

    Totals are since the start; `held_total`, `would_hold_total` and `would_refuse_total` since that
    of the workers that live.
    """

    mode: GovernorMode | None
    policy: LimitPolicyName | None
    failures: list[FailureRow]
    policy_failed: list[str]
    """Replicas for which the policy of their limit has failed, and was left out."""
    held: int | None
    held_by_tenant: dict[str, int]
    held_total: int | None
    would_hold_total: int | None
    would_refuse_total: int | None
    rejected_total: dict[str, int]
    merged_total: dict[str, int]
    targets: list[TargetRow]
    budgets: list[BudgetRow]
    tenants: list[TenantRow]
    tenants_left_out: int
    """Tenants beyond the hundred that used most."""
    decisions: list[DecisionRow]
    """The latest, the newest first."""


def governor_status(fleet: Fleet, *, utc_offset_s: float) -> GovernorStatus:
    """The state now; `utc_offset_s` is UTC minus monotonic time."""
    reports, families = fleet.reports(), fleet.families()
    newest = newest_governor(reports)
    states = [r.governor.state for r in reports if r.governor and r.governor.state is not None]
    newest_state = newest.state if newest is not None else None
    held_by_tenant: dict[str, int] = {}
    for state in states:
        for tenant, count in state.held_by_tenant.items():
            held_by_tenant[tenant] = held_by_tenant.get(tenant, 0) + count
    tenants, left_out = tenant_rows(families)
    return GovernorStatus(
        mode=newest_state.mode if newest_state is not None else None,
        policy=newest_state.policy if newest_state is not None else None,
        failures=_failures(reports),
        policy_failed=_policy_failed(reports),
        held=_total(states, "held"),
        held_by_tenant=held_by_tenant,
        held_total=_total(states, "held_total"),
        would_hold_total=_total(states, "would_hold_total"),
        would_refuse_total=_total(states, "would_refuse_total"),
        rejected_total=_by_label(families, "mileage_requests_rejected_total", "reason"),
        merged_total=_by_label(families, "mileage_requests_merged_total", "kind"),
        targets=target_rows(newest.slo) if newest is not None else [],
        budgets=budget_rows(fleet.budget_states()),
        tenants=tenants,
        tenants_left_out=left_out,
        decisions=_decisions(reports, fleet.knob_events(), utc_offset_s),
    )


def _failures(reports: Sequence[Report]) -> list[FailureRow]:
    return [
        FailureRow(worker=report.pid, failure=report.governor.failure)
        for report in reports
        if report.governor is not None and report.governor.failure is not None
    ]


def _policy_failed(reports: Sequence[Report]) -> list[str]:
    names = (each.name for report in reports for each in report.replicas if each.policy_failed)
    return sorted(set(names))


def _total(states: Sequence[GovernorState], field: str) -> int | None:
    return sum(getattr(state, field) for state in states) if states else None


def _by_label(families: Sequence[FamilySnapshot], name: str, label: str) -> dict[str, int]:
    totals: dict[str, int] = {}
    for family in families:
        if family.name == name:
            position = family.labels.index(label)
            for labels, number in family.numbers.items():
                totals[labels[position]] = totals.get(labels[position], 0) + int(number)
    return totals


# --- decisions --------------------------------------------------------------------------------


def _decisions(
    reports: Sequence[Report], events: Sequence[KnobEvent], utc_offset_s: float
) -> list[DecisionRow]:
    """Those of all workers, and of engines, in the order of time, the newest first."""
    told = [each for report in reports for each in _of_worker(report, utc_offset_s)]
    told += [_of_engine(event, utc_offset_s) for event in events]
    rows: list[DecisionRow] = []
    open_rows: dict[tuple[str, str], int] = {}
    for row in sorted(told, key=lambda row: row.at_utc_s):
        key = (row.subject, row.reason)
        if row.kind == "refused":
            index = open_rows.get(key)
            if index is not None and _joins(rows[index], row):
                known = rows[index]
                rows[index] = msgspec.structs.replace(
                    known, count=known.count + row.count, worker=None
                )
                continue
            open_rows[key] = len(rows)
        rows.append(row)
    return rows[: -_DECISIONS_MAX - 1 : -1]


def _joins(known: DecisionRow, row: DecisionRow) -> bool:
    return known.worker != row.worker and row.at_utc_s - known.at_utc_s < _TOGETHER_S


def _of_worker(report: Report, utc_offset_s: float) -> Iterator[DecisionRow]:
    if report.governor is None or report.governor.state is None:
        return
    limits: dict[str, int | None] = {}
    for decision in report.governor.state.decisions:
        before = None
        if decision.limit is not None:
            before = limits.get(decision.subject)
            limits[decision.subject] = decision.limit
        yield DecisionRow(
            at_utc_s=round(decision.at_s + utc_offset_s, 3),
            kind=decision.kind,
            subject=decision.subject,
            reason=decision.reason,
            detail=decision.detail,
            limit=decision.limit,
            limit_before=before,
            count=decision.count,
            worker=report.pid,
        )


def _of_engine(event: KnobEvent, utc_offset_s: float) -> DecisionRow:
    return DecisionRow(
        at_utc_s=round(event.at_s + utc_offset_s, 3),
        kind="engine",
        subject=event.replica,
        reason=event.detail,
        detail=None,
        limit=None,
        limit_before=None,
        count=1,
        worker=None,
    )
