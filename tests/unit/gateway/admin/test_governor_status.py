"""The governor's document: several workers as one, told in the order of time."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.control.decisions import Decision
from mileage.control.governor_state import GovernorState
from mileage.core.slo import Slo, SloConfig
from mileage.gateway.admin.governor import GovernorStatus, governor_status
from mileage.gateway.admin.targets import limit_of
from mileage.gateway.messages import GovernorReport, ReplicaStatus, Report
from mileage.measure.metrics import Counter, FamilySnapshot
from tests.support.admin_plane import UTC_OFFSET_S, AdminPlane
from tests.support.synthetic_fleet import SyntheticFleet


def state(**fields: Any) -> GovernorState:
    given: dict[str, Any] = {
        "mode": "act",
        "policy": "model",
        "held": 0,
        "held_by_tenant": {},
        "held_total": 0,
        "refused_total": {},
        "would_hold_total": 0,
        "would_refuse_total": 0,
        "waiting": {},
        "decisions": [],
    }
    return GovernorState(**(given | fields))


def report(
    pid: int,
    governor: GovernorState | None,
    *,
    version: int = 1,
    slo: SloConfig | None = None,
    failure: str | None = None,
    families: list[FamilySnapshot] | None = None,
    replicas: list[ReplicaStatus] | None = None,
) -> Report:
    return Report(
        pid=pid,
        at_s=10.0,
        connections=0,
        in_flight=0,
        draining=False,
        ledger_ok=True,
        families=families or [],
        replicas=replicas or [],
        config_version=version,
        governor=GovernorReport(state=governor, slo=slo or SloConfig(), failure=failure),
    )


def told(*reports: Report) -> GovernorStatus:
    fleet = SyntheticFleet(replicas=(), pids=())
    for each in reports:
        fleet.state.report(each)
    return governor_status(fleet, utc_offset_s=1_000.0)


def limit(at_s: float, value: int, replica: str = "a") -> Decision:
    return Decision(at_s=at_s, kind="limit", subject=replica, reason="why", limit=value)


def refused(at_s: float, count: int = 1, tenant: str = "t") -> Decision:
    return Decision(at_s=at_s, kind="refused", subject=tenant, reason="deadline", count=count)


def test_before_any_report_nothing_is_known() -> None:
    found = told()
    assert (found.mode, found.held, found.held_total) == (None, None, None)
    assert (found.decisions, found.targets, found.rejected_total) == ([], [], {})


def test_what_workers_hold_is_added_up() -> None:
    found = told(
        report(1, state(held=3, held_by_tenant={"t": 3}, held_total=9, would_hold_total=1)),
        report(2, state(held=2, held_by_tenant={"t": 1, "u": 1}, held_total=5)),
    )
    assert (found.held, found.held_total, found.would_hold_total) == (5, 14, 1)
    assert found.held_by_tenant == {"t": 4, "u": 1}


def test_mode_and_targets_are_of_the_newest_configuration() -> None:
    slo = SloConfig(ttft_s=1.0, models={"m": Slo(itl_s=0.1), "free": Slo()})
    found = told(
        report(1, state(mode="observe", policy="aimd"), version=2, slo=slo),
        report(2, state(mode="act"), version=1, slo=SloConfig(ttft_s=9.0)),
    )
    assert (found.mode, found.policy) == ("observe", "aimd")
    rows = [(row.model, row.ttft_s, row.itl_s) for row in found.targets]
    assert rows == [(None, 1.0, None), ("m", None, 0.1)]


def test_decisions_of_workers_are_told_in_the_order_of_time_the_newest_first() -> None:
    found = told(
        report(1, state(decisions=[limit(1.0, 8), limit(3.0, 6)])),
        report(2, state(decisions=[limit(2.0, 7), limit(4.0, 9), limit(5.0, 2, "b")])),
    )
    rows = [
        (each.at_utc_s, each.subject, each.limit_before, each.limit, each.worker)
        for each in found.decisions
    ]
    # Each worker decides by itself, so what was before is of the same worker.
    assert rows == [
        (1_005.0, "b", None, 2, 2),
        (1_004.0, "a", 7, 9, 2),
        (1_003.0, "a", 8, 6, 1),
        (1_002.0, "a", None, 7, 2),
        (1_001.0, "a", None, 8, 1),
    ]


def test_refusals_of_one_moment_are_one_row_over_the_workers() -> None:
    found = told(
        report(1, state(decisions=[refused(1.0, 3), refused(2.5, 1), refused(2.6, 1, "u")])),
        report(2, state(decisions=[refused(1.4, 4), refused(4.0, 2)])),
    )
    rows = [(each.at_utc_s, each.subject, each.count, each.worker) for each in found.decisions]
    assert rows == [
        (1_004.0, "t", 2, 2),
        (1_002.6, "u", 1, 1),
        (1_002.5, "t", 1, 1),
        (1_001.0, "t", 7, None),
    ]


def test_only_the_latest_hundred_are_told() -> None:
    many = [limit(float(number), number) for number in range(80)]
    found = told(report(1, state(decisions=many)), report(2, state(decisions=many)))
    assert len(found.decisions) == 100
    assert found.decisions[0].at_utc_s == 1_079.0
    assert found.decisions[-1].at_utc_s == 1_030.0


def test_failures_are_told_by_worker_and_policies_by_replica() -> None:
    def replica(name: str, failed: bool) -> ReplicaStatus:
        return ReplicaStatus(name=name, state="up", models=(), in_flight=0, policy_failed=failed)

    found = told(
        report(1, state(), replicas=[replica("b", True), replica("a", False)]),
        report(2, None, failure="KeyError: 'x'", replicas=[replica("b", True)]),
    )
    assert [(row.worker, row.failure) for row in found.failures] == [(2, "KeyError: 'x'")]
    assert found.policy_failed == ["b"]
    assert found.held == 0


def test_refusals_and_merged_requests_are_added_up_over_tenants() -> None:
    rejected = Counter("mileage_requests_rejected_total", "R.", ("tenant", "reason"))
    for tenant, reason, number in (("t", "deadline", 3), ("u", "deadline", 2), ("u", "busy", 1)):
        rejected.add((tenant, reason), number)
    merged = Counter("mileage_requests_merged_total", "M.", ("kind",))
    merged.add(("same",), 4)
    families = [rejected.snapshot(), merged.snapshot()]
    found = told(report(1, state(), families=families))
    assert found.rejected_total == {"deadline": 5, "busy": 1}
    assert found.merged_total == {"same": 4}


def test_the_api_has_the_document_and_the_status_its_heads() -> None:
    plane = AdminPlane()
    plane.fleet.budget("search", "usd", "day", 50_000_000_000, 12_000_000_000)
    plane.advance(60)
    document = plane.call("/api/v1/governor").json()
    assert document["mode"] == "act"
    assert document["targets"] == [{"model": None, "ttft_s": 0.25, "itl_s": 0.04}]
    assert document["budgets"][0]["left"] == 38
    newest = document["decisions"][0]["at_utc_s"]
    assert UTC_OFFSET_S + 1_000 < newest <= UTC_OFFSET_S + 1_060
    assert {row["tenant"] for row in document["tenants"]} == {"search", "support", "batch"}
    status = plane.call("/api/v1/status").json()
    assert status["held"] == document["held"]
    row = status["replicas"][0]
    assert 16 <= row["limit"] <= 64
    assert row["limit_reason"].startswith("step ")
    assert plane.call("/api/v1/governor", token=None).status == 401


@pytest.mark.parametrize(
    ("parts", "limit"),
    [
        pytest.param([("up", 2.5), ("up", 3.5)], 6.0, id="the parts of all workers"),
        pytest.param([("up", 2.5), ("up", None)], None, id="one that limits nothing: no limit"),
        pytest.param([("up", 4.0), ("down", None)], 4.0, id="one that does not use it"),
        pytest.param([("half_open", 4.0)], 4.0, id="on probation"),
        pytest.param([("down", None)], None, id="nobody uses it"),
        pytest.param([], None, id="nobody knows it"),
    ],
)
def test_a_replicas_limit(parts: list[tuple[str, float | None]], limit: float | None) -> None:
    statuses = [
        ReplicaStatus(name="a", state=state, models=(), in_flight=0, limit=part)
        for state, part in parts
    ]
    assert limit_of(statuses) == limit


@pytest.mark.parametrize("failure", [None, "ValueError: it broke"])
def test_a_governor_that_failed_limits_nothing(failure: str | None) -> None:
    plane = AdminPlane()
    for governor in plane.fleet.governors():
        governor.failure = failure
    plane.advance(3)
    (row, *_) = plane.call("/api/v1/status").json()["replicas"]
    assert (row["limit"] is None) is (failure is not None)
    assert len(plane.call("/api/v1/governor").json()["failures"]) == (2 if failure else 0)
