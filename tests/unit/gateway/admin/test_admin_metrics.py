"""The plane's own families: absent where unknown, and in nobody else's way."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mileage.core.replica import ReplicaView
from mileage.gateway.admin import exposition, rates
from mileage.gateway.admin.fleet import LedgerStatus, ReplicaHealth
from mileage.gateway.admin.governor_metrics import GovernedMetrics
from mileage.gateway.admin.metrics import AdminMetrics, PlaneFigures, families
from mileage.gateway.admin.processes import ProcessSample
from mileage.gateway.admin.reload import ConfigStatus
from mileage.gateway.metrics import GatewayMetrics
from tests.support.synthetic_fleet import SyntheticFleet

PLANE = PlaneFigures(
    uptime_s=12.0,
    subscribers=1,
    auth_failures=0,
    processes=[
        ProcessSample(pid=1, role="supervisor", rss_bytes=100, cpu_s=1.0),
        ProcessSample(pid=2, role="worker", rss_bytes=200, cpu_s=2.0),
        ProcessSample(pid=3, role="worker", rss_bytes=300, cpu_s=3.0),
    ],
    cpu_s_by_role={"supervisor": 1.0, "worker": 9.0},
)


def numbers(fleet: SyntheticFleet, now_s: float = 100.0) -> dict[str, dict[tuple[str, ...], float]]:
    return {each.name: each.numbers for each in families(fleet, PLANE, now_s)}


def empty_fleet() -> SyntheticFleet:
    fleet = SyntheticFleet(replicas=(), pids=())
    fleet.ledger = None
    return fleet


def test_what_is_unknown_is_absent() -> None:
    found = numbers(empty_fleet())
    assert found["mileage_workers"] == {(): 0}
    for name in (
        "mileage_worker_report_age_seconds",
        "mileage_replica_up",
        "mileage_replica_running",
        "mileage_ledger_up",
        "mileage_ledger_lag_bytes",
    ):
        assert name not in found


def test_a_replica_is_neither_up_nor_down_before_its_first_check() -> None:
    fleet = empty_fleet()
    for name, up in (("new", None), ("good", True), ("bad", False)):
        fleet.check(ReplicaHealth(name=name, kind="vllm", up=up, enabled=name != "bad"))
    found = numbers(fleet)
    assert found["mileage_replica_up"] == {("good",): 1, ("bad",): 0}
    assert found["mileage_replica_enabled"] == {("new",): 1, ("good",): 1, ("bad",): 0}


@pytest.mark.parametrize(
    ("observed_s", "running"),
    [
        pytest.param(99.0, {("a",): 3}, id="fresh"),
        pytest.param(85.0, {("a",): 3}, id="just not too old"),
        pytest.param(84.9, None, id="too old"),
    ],
)
def test_figures_of_an_old_observation_are_left_out_but_its_age_is_told(
    observed_s: float, running: dict[tuple[str, ...], float] | None
) -> None:
    fleet = empty_fleet()
    fleet.state.view(ReplicaView(replica="a", observed_s=observed_s, running=3))
    found = numbers(fleet)
    assert found.get("mileage_replica_running") == running
    assert "mileage_replica_waiting" not in found
    assert found["mileage_replica_observation_age_seconds"][("a",)] == pytest.approx(
        100.0 - observed_s
    )


def test_processes_are_added_up_by_role() -> None:
    found = numbers(empty_fleet())
    assert found["mileage_process_resident_memory_bytes"] == {
        ("supervisor",): 100,
        ("worker",): 500,
    }
    assert found["mileage_processes"] == {("supervisor",): 1, ("worker",): 2}
    assert found["mileage_process_cpu_seconds_total"] == {("supervisor",): 1, ("worker",): 9}


def test_the_ledger_is_told_as_far_as_it_is_known() -> None:
    fleet = empty_fleet()
    fleet.ledger = LedgerStatus(
        ok=False, lag_bytes=0, lost_total=2, refused_total=3, unwritten_total=4
    )
    found = numbers(fleet)
    assert found["mileage_ledger_up"] == {(): 0}
    assert found["mileage_ledger_lag_bytes"] == {(): 0}
    assert found["mileage_ledger_lost_requests_total"] == {(): 2}
    assert found["mileage_ledger_refused_records_total"] == {(): 3}
    assert found["mileage_ledger_unwritten_records_total"] == {(): 4}
    assert "mileage_ledger_rows_total" not in found


def test_no_name_is_used_by_the_data_plane_too() -> None:
    own = {family.name for family in (*AdminMetrics().all(), *GovernedMetrics().families())}
    workers = {family.name for family in GatewayMetrics().families()}
    assert own & workers == set()


def test_the_dashboards_series_come_from_families_that_workers_have() -> None:
    made = {family.name: family for family in GatewayMetrics().families()}
    for name, (_, label) in rates._COUNTERS.items():
        assert label is None or label in made[name].labels
    assert set(rates._HISTOGRAMS) <= set(made)
    assert made[rates._TARGETS].labels == ("model", "target", "met")


def test_more_replicas_than_a_family_holds_are_still_one_valid_scrape() -> None:
    fleet = empty_fleet()
    for number in range(1_500):
        fleet.check(ReplicaHealth(name=f"r{number}", kind="vllm", up=True))
    text = exposition.render(families(fleet, PLANE, 100.0)).decode()
    parsed = {each.name: each for each in text_string_to_metric_families(text)}
    assert len(parsed["mileage_replica_up"].samples) == 1_001


def test_a_refused_reload_and_what_waits_for_a_restart_are_seen() -> None:
    fleet = empty_fleet()
    fleet.config = ConfigStatus(
        version=4,
        since_utc_s=10.0,
        read_utc_s=20.0,
        error="m.toml:3: slo.ttft_s",
        restart_needed=["server.port", "admin.port"],
        reloads_total=5,
        failures_total=2,
    )
    found = {name: value for name, value in numbers(fleet).items() if "_config_" in name}
    assert found == {
        "mileage_config_version": {(): 4},
        "mileage_config_reloads_total": {(): 5},
        "mileage_config_reload_failures_total": {(): 2},
        "mileage_config_last_reload_ok": {(): 0},
        "mileage_config_last_success_timestamp_seconds": {(): 20.0},
        "mileage_config_restart_needed": {(): 2},
    }
    fleet.config = None
    assert not any("_config_" in name for name in numbers(fleet))
