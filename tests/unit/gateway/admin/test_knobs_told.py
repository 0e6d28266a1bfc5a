"""What is told of engines whose own limits are set: rows, decisions, metrics."""

from __future__ import annotations

from typing import Any

from mileage.core.replica import ReplicaView
from mileage.gateway.admin.governor import governor_status
from mileage.gateway.admin.knob_metrics import knob_families
from mileage.gateway.admin.status import replica_rows
from mileage.gateway.knob_status import KnobEvent, KnobStatus
from tests.support.synthetic_fleet import SyntheticFleet


def knob(replica: str = "a", **fields: Any) -> KnobStatus:
    given: dict[str, Any] = {
        "state": "held",
        "limit": 12,
        "asked": 16,
        "requested": 16,
        "applied": 32,
        "start": 64,
        "running_max": 64,
        "version": 3,
        "applied_version": 2,
        "boot": "b",
        "ranks": 1,
        "clamped": None,
        "gaps": {},
        "step_budget": None,
        "lease_s": 10.0,
        "lease_left_s": 9.0,
        "answered_ago_s": 1.0,
        "error": None,
        "error_kind": None,
        "requests_total": {"ok": 5, "timeout": 2},
        "restarts_total": 1,
        "lapses_total": 0,
    }
    return KnobStatus(replica=replica, **(given | fields))


def test_a_row_has_the_control_of_its_replica() -> None:
    fleet = SyntheticFleet(replicas=("a", "b"), pids=())
    fleet.knobs = [knob("a")]
    fleet.state.view(ReplicaView(replica="b", observed_s=0.0))
    controls = {row.name: row.control for row in replica_rows(fleet, 1.0)}
    assert controls == {"a": knob("a"), "b": None}


def test_what_happened_is_among_the_decisions() -> None:
    fleet = SyntheticFleet(replicas=("a",), pids=())
    fleet.knob_news = [KnobEvent(at_s=5.0, replica="a", kind="restarted", detail="anew")]
    (row,) = governor_status(fleet, utc_offset_s=1_000.0).decisions
    assert (row.kind, row.subject, row.reason, row.at_utc_s) == ("engine", "a", "anew", 1_005.0)


def test_metrics_are_of_engines_that_are_controlled() -> None:
    asking = knob("new", state="asking", asked=None, applied=None, start=None, requests_total={})
    failed = knob("bad", state="fault", asked=None, error="no", error_kind="timeout")
    found = {each.name: each.numbers for each in knob_families([knob(), failed, asking])}
    assert found["mileage_engine_control_up"] == {("a",): 1, ("bad",): 0}
    caps = found["mileage_engine_control_active_max"]
    assert caps == {
        ("a", "asked"): 16,
        ("a", "applied"): 32,
        ("a", "start"): 64,
        ("bad", "applied"): 32,
        ("bad", "start"): 64,
    }
    assert found["mileage_engine_control_requests_total"][("a", "timeout")] == 2
    assert found["mileage_engine_control_restarts_total"][("a",)] == 1
    assert knob_families([]) == []
