"""The control API tells the state as it is, changes what it says, and names bad input."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as parse_text

from mileage import __version__
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.fleet import LedgerStatus
from mileage.gateway.admin.reload import Reloaded
from tests.support.admin_plane import UTC_OFFSET_S, AdminPlane
from tests.support.synthetic_fleet import SyntheticFleet


def test_the_status_is_that_of_the_fleet() -> None:
    plane = AdminPlane()
    plane.advance(20)
    status = plane.call("/api/v1/status").json()
    reports = plane.fleet.reports()
    assert status["version"] == __version__
    assert status["uptime_s"] == 20
    assert status["now_utc_s"] == UTC_OFFSET_S + 1_020
    assert status["started_utc_s"] == UTC_OFFSET_S + 1_000
    assert status["in_flight"] == sum(report.in_flight for report in reports)
    assert status["connections"] == sum(report.connections for report in reports)
    assert status["draining"] is False
    assert status["ledger"]["ok"] is True
    assert [row["pid"] for row in status["processes"]][1:] == [r.pid for r in reports]
    assert [row["name"] for row in status["replicas"]] == [
        health.name for health in plane.fleet.replica_health()
    ]


def test_before_the_first_report_nothing_is_known() -> None:
    status = AdminPlane().call("/api/v1/status").json()
    assert (status["in_flight"], status["connections"]) == (None, None)
    assert status["replicas"][0]["running"] is None


def test_a_replica_is_disabled_and_enabled_by_name() -> None:
    plane = AdminPlane()
    plane.advance(2)
    answer = plane.call("/api/v1/replicas/h100-b:8000/disable", method="POST")
    assert answer.json() == {"name": "h100-b:8000", "enabled": False}
    rows = {row["name"]: row for row in plane.call("/api/v1/replicas").json()["replicas"]}
    assert (rows["h100-b:8000"]["state"], rows["h100-b:8000"]["enabled"]) == ("disabled", False)
    assert rows["h100-a:8000"]["state"] == "up"
    assert plane.call("/api/v1/replicas/h100-b:8000/enable", method="POST").status == 200
    assert plane.call("/api/v1/replicas").json()["replicas"][1]["state"] == "up"


@pytest.mark.parametrize("name", ["a/b", "enable", "a/enable", "<b>", "ü", "..", "%2f"])
def test_any_name_of_a_replica_can_be_told(name: str) -> None:
    plane = AdminPlane(fleet=SyntheticFleet(replicas=(name, "other")))
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    answer = plane.call(f"/api/v1/replicas/{quoted}/disable", method="POST")
    assert answer.json() == {"name": name, "enabled": False}
    assert [health.enabled for health in plane.fleet.replica_health()] == [False, True]


def test_an_unknown_replica_is_not_found() -> None:
    answer = AdminPlane().call("/api/v1/replicas/none/disable", method="POST")
    assert answer.status == 404
    assert answer.json()["error"]["code"] == "replica_not_found"
    assert answer.json()["error"]["param"] == "name"


def test_a_drain_is_asked_for_and_shown_at_once() -> None:
    plane = AdminPlane()
    assert plane.call("/api/v1/drain", method="POST").json() == {"draining": True}
    assert plane.fleet.drains == 1
    assert plane.call("/api/v1/status").json()["draining"] is True


def test_series_end_now_and_align() -> None:
    plane = AdminPlane()
    plane.advance(120)
    series = plane.call("/api/v1/series?window_s=60").json()
    times = series["times_utc_s"]
    assert (series["step_s"], len(times)) == (1, 60)
    assert times[-1] == UTC_OFFSET_S + 1_120
    assert times[-1] - times[0] == 59
    assert all(len(values) == 60 for values in series["values"].values())
    assert all(len(each["values"]) == 60 for group in series["groups"].values() for each in group)
    assert {each["label"] for each in series["groups"]["running"]} == {
        "h100-a:8000",
        "h100-b:8000",
        "h100-c:8000",
    }
    p50, p99 = series["values"]["ttft_p50_s"][-1], series["values"]["ttft_p99_s"][-1]
    assert 0 < p50 < p99


@pytest.mark.parametrize(
    ("query", "param"),
    [
        pytest.param("window_s=0", "window_s", id="no window"),
        pytest.param("window_s=-5", "window_s", id="a negative window"),
        pytest.param("window_s=86401", "window_s", id="more than a day"),
        pytest.param("window_s=1e3", "window_s", id="no whole number"),
        pytest.param("window_s=", "window_s", id="an empty window"),
        pytest.param("window_s=%D9%A3", "window_s", id="digits of another script"),
        pytest.param("window_s=" + "9" * 5000, "window_s", id="a very long number"),
        pytest.param("step_s=7", "step_s", id="a step that is not kept"),
        pytest.param("step_s=x", "step_s", id="a step that is no number"),
    ],
)
def test_bad_input_is_named(query: str, param: str) -> None:
    answer = AdminPlane().call(f"/api/v1/series?{query}")
    assert answer.status == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/none", 404, "not_found"),
        ("GET", "/api/v1/status/", 404, "not_found"),
        ("POST", "/api/v1/status", 405, "method_not_allowed"),
        ("GET", "/api/v1/drain", 405, "method_not_allowed"),
        ("DELETE", "/api/v1/replicas", 405, "method_not_allowed"),
    ],
)
def test_errors_have_one_form(method: str, path: str, status: int, code: str) -> None:
    answer = AdminPlane().call(path, method=method)
    assert answer.status == status
    assert answer.json()["error"]["code"] == code
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_the_configuration_is_what_the_fleet_makes_public() -> None:
    plane = AdminPlane()
    assert plane.call("/api/v1/config").json() == plane.fleet.config_public()


def test_healthz_answers_anybody() -> None:
    answer = AdminPlane().call("/healthz", token=None)
    assert (answer.status, answer.json()) == (200, {"status": "ok"})


def test_metrics_hold_the_workers_families_and_the_planes_own() -> None:
    plane = AdminPlane()
    plane.advance(30)
    plane.fleet.set_health("h100-c:8000", up=False, reason="refused")
    answer = plane.call("/metrics", token=None)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(answer.body.decode())
        for sample in family.samples
    }
    assert samples["mileage_workers", ()] == 2
    assert samples["mileage_replica_up", (("replica", "h100-a:8000"),)] == 1
    assert samples["mileage_replica_up", (("replica", "h100-c:8000"),)] == 0
    assert samples["mileage_process_resident_memory_bytes", (("role", "supervisor"),)] > 1e6
    assert any(name == "mileage_requests_total" for name, _ in samples)
    assert samples["mileage_ledger_up", ()] == 1


def test_openmetrics_are_served_where_asked_for() -> None:
    plane = AdminPlane()
    plane.advance(5)
    answer = plane.call("/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = list(text_string_to_metric_families(answer.body.decode()))  # type: ignore[no-untyped-call]
    assert "mileage_build" in {family.name for family in families} | {
        family.name.removesuffix("_info") for family in families
    }


def test_a_broken_ledger_is_told() -> None:
    plane = AdminPlane()
    plane.fleet.ledger = LedgerStatus(ok=False, error="disk full")
    status = plane.call("/api/v1/status").json()
    assert status["ledger"] == msgspec.to_builtins(plane.fleet.ledger)
    text = plane.call("/metrics").body.decode()
    assert "\nmileage_ledger_up 0.0\n" in text
    assert "mileage_ledger_rows_total" not in text


def test_points_keep_their_times_when_the_clocks_drift_a_little() -> None:
    plane = AdminPlane()
    plane.advance(3)
    seen = []
    for plane.drift_s in (0.4, 0.6, 0.45, 0.7, 3600.2, 3599.8):
        plane.advance(1)
        times = plane.call("/api/v1/series?window_s=1").json()["times_utc_s"]
        seen.append(times[0] - UTC_OFFSET_S - plane.now_s)
    assert seen == [0, 0, 0, 0, 3600, 3600]


RELOADED = Reloaded(
    version=3,
    changed=["slo.ttft_s", "server.port"],
    restart_needed=["server.port"],
    applied_by=[1],
    unconfirmed=[2],
)


def test_a_reload_tells_what_came_of_it() -> None:
    plane = AdminPlane()
    plane.fleet.reloads.append(RELOADED)
    answer = plane.call("/api/v1/config/reload", method="POST")
    assert answer.status == 200
    assert answer.json() == msgspec.to_builtins(RELOADED)


@pytest.mark.parametrize(
    ("failure", "status", "code", "param"),
    [
        pytest.param(
            ConfigError("slo.ttft_s", 0, "more", place="m.toml:3"),
            422,
            "invalid_config",
            "slo.ttft_s",
            id="not in order",
        ),
        pytest.param(MileageError("it is starting"), 503, "not_now", None, id="not now"),
    ],
)
def test_a_reload_that_is_refused_says_why(
    failure: MileageError, status: int, code: str, param: str | None
) -> None:
    plane = AdminPlane()
    plane.fleet.reloads.append(failure)
    answer = plane.call("/api/v1/config/reload", method="POST")
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["param"]) == (status, code, param)
    assert error["message"] == str(failure)


def test_a_trial_is_asked_for_by_keys_or_tables_and_answered_as_a_reload() -> None:
    plane = AdminPlane()
    plane.fleet.reloads.append(RELOADED)
    body = b'{"set": {"governor": {"mode": "off"}, "slo.ttft_s": 2}, "for_s": 5}'
    answer = plane.call("/api/v1/config/trial", method="POST", body=body)
    assert answer.status == 200
    assert answer.json() == msgspec.to_builtins(RELOADED)
    (trial,) = plane.fleet.trials
    assert (trial.settings, trial.for_s) == ({"governor.mode": "off", "slo.ttft_s": 2}, 5.0)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param(b"", 400, "invalid_body", id="no body"),
        pytest.param(b'{"set": []}', 400, "invalid_body", id="no settings"),
        pytest.param(b'{"set": {}, "more": 1}', 400, "invalid_body", id="an unknown field"),
        pytest.param(b'{"set": {"\xff": 1}}', 400, "invalid_body", id="no text"),
        pytest.param(b'{"set": {"admin.token": "x"}}', 422, "invalid_config", id="another section"),
        pytest.param(b'{"set": {}, "for_s": -1}', 422, "invalid_config", id="for no time"),
        pytest.param(b" " * 70_000, 413, "too_large", id="a long body"),
    ],
)
def test_what_is_no_trial(body: bytes, status: int, code: str) -> None:
    plane = AdminPlane()
    answer = plane.call("/api/v1/config/trial", method="POST", body=body)
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert plane.fleet.trials == []


def test_only_a_page_of_this_server_reloads_with_a_cookie() -> None:
    plane = AdminPlane()
    headers = {"cookie": plane.cookie(), "origin": "http://evil.example"}
    path = "/api/v1/config/reload"
    assert plane.call(path, method="POST", headers=headers, token=None).status == 403
    assert plane.call(path, method="POST", token=None).status == 401
    assert plane.call(path).status == 405
    plane.fleet.reloads.append(RELOADED)
    headers["origin"] = "http://localhost:8081"
    assert plane.call(path, method="POST", headers=headers, token=None).status == 200
