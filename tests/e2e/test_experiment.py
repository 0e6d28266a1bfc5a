"""A live experiment: a real gateway before two engines, one of which gets worse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.engine_script import Behaviour
from tests.support.experiment_site import HALVES, ExperimentSite, experiment_site
from tests.support.gateway import wait_until
from tests.support.local_http import LOCAL

_CANARY = """
[experiment]
name = "new-engine"
mode = "canary"
replicas = ["new"]
steps = [0.3, 0.5]
step_requests_min = 20
step_time_min_s = {time_s}
block_requests_min = 5
block_s = 1
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ExperimentSite]:
    with experiment_site(tmp_path) as made:
        yield made


def test_every_request_is_in_one_arm_and_is_served_there(site: ExperimentSite) -> None:
    assert site.status()["state"] == "none"
    assert site.reload(HALVES).status_code == 200
    answers = site.send(120)
    assert all("[DONE]" in answer for answer in answers)
    status = site.wait_counted()
    assert (status["state"], status["ratio"], status["mode"]) == ("running", 0.5, "ab")
    assert status["a"]["outcomes"] == {"ok": len(site.old.received)}
    assert status["b"]["outcomes"] == {"ok": len(site.new.received)}
    assert 30 < len(site.new.received) < 90
    assert status["a"]["ttft_p50_s"] is not None
    metrics = httpx.get(f"{site.gateway.listening.admin_url}/metrics", **LOCAL).text
    assert 'mileage_experiment_ratio{experiment="halves"} 0.5' in metrics
    arm_b = f'mileage_experiment_requests_total{{arm="b",outcome="ok"}} {len(site.new.received)}'
    assert arm_b in metrics


def test_a_canary_that_fails_is_rolled_back_and_no_request_is_lost(site: ExperimentSite) -> None:
    assert site.reload(_CANARY.format(time_s=600)).status_code == 200
    assert all("[DONE]" in answer for answer in site.send(40))
    site.new.behaviour = Behaviour(status=503)

    def rolled_back() -> bool:
        # What the new engine fails the old one serves.
        assert all("[DONE]" in answer for answer in site.send(20))
        return bool(site.status()["state"] == "rolled_back")

    wait_until(rolled_back, "the canary is rolled back", 60)
    status = site.wait_counted()
    assert status["ratio"] == 0.0
    assert "more of its requests fail" in status["reason"]
    assert status["b"]["errors"]["status"] == status["b"]["outcomes"]["crossed"]
    assert status["rollbacks_total"] == 1
    before = len(site.new.received)
    assert all("[DONE]" in answer for answer in site.send(30))
    assert len(site.new.received) == before
    assert "is worse" in site.gateway.log
    # The state outlives a gateway that is killed: it does not begin again with a bad engine.
    site.restart_killed()
    assert site.status()["state"] == "rolled_back"
    assert site.status()["ratio"] == 0.0
    assert all("[DONE]" in answer for answer in site.send(20))
    assert len(site.new.received) == before
    site.sent = 0
    # Another section in the file is another experiment.
    assert site.reload(HALVES).status_code == 200
    assert site.status()["state"] == "running"
    site.new.behaviour = Behaviour()
    site.send(40)
    assert len(site.new.received) > before


def test_a_canary_all_of_whose_replicas_are_down_is_rolled_back_at_once(
    site: ExperimentSite,
) -> None:
    assert site.reload(_CANARY.format(time_s=600)).status_code == 200
    site.send(20)
    wait_until(lambda: site.status()["b"]["requests"], "the canary is seen")
    site.new.healthy = False
    wait_until(lambda: site.status()["state"] == "rolled_back", "it is rolled back")
    assert site.status()["reason"] == "all replicas of arm b are down"
    assert all("[DONE]" in answer for answer in site.send(20))


def test_a_good_canary_is_promoted_step_by_step(site: ExperimentSite) -> None:
    assert site.reload(_CANARY.format(time_s=1)).status_code == 200

    def promoted() -> bool:
        assert all("[DONE]" in answer for answer in site.send(40))
        return bool(site.status()["state"] == "promoted")

    wait_until(promoted, "the canary is promoted", 60)
    assert site.status()["ratio"] == 0.5  # its last step


def test_the_command_starts_shows_promotes_and_stops(site: ExperimentSite, tmp_path: Path) -> None:
    assert site.command("stop").returncode == 1
    trial = tmp_path / "trial.toml"
    trial.write_text(site.text(HALVES))
    started = site.command("start", "--config", str(trial), "--json")
    assert started.returncode == 0, started.stderr
    assert json.loads(started.stdout)["name"] == "halves"
    assert json.loads(started.stdout)["from_file"] is False
    site.send(40)
    site.wait_counted()
    shown = site.command("status")
    assert shown.returncode == 3
    assert "50% of the traffic in arm b" in shown.stdout
    # A gateway that is killed goes on with what was started by hand.
    site.restart_killed()
    assert site.status()["state"] == "running"
    assert site.command("promote").returncode == 0
    before = len(site.old.received)
    site.send(20)
    assert len(site.old.received) == before
    stopped = site.command("stop", "--json")
    assert json.loads(stopped.stdout)["state"] == "stopped"
    site.send(40)
    assert len(site.old.received) > before
    refused = site.post("/api/v1/experiment/start", {"name": "x", "replicas": ["nobody"]})
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "experiment.replicas"
    assert site.post("/api/v1/experiment/start", {"nonsense": 1}).status_code == 400
    bad = site.reload('[experiment]\nname = "x"\nreplicas = ["old", "new"]\n')
    assert bad.status_code == 422
    assert "arm a needs the others" in bad.json()["error"]["message"]
