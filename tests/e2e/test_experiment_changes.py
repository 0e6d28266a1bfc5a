"""A live experiment while all else changes: reloads, workers, orders that cross, bad input."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.engine_script import Behaviour
from tests.support.experiment_site import HALVES, ExperimentSite, experiment_site
from tests.support.gateway import wait_until
from tests.support.local_http import LOCAL

_ONE_AT_A_TIME = '[governor]\npolicy = "static"\n[governor.static]\nlimit = 1\n'


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ExperimentSite]:
    with experiment_site(tmp_path, "--workers", "2") as made:
        yield made


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExperimentSite]:
    """One site for all that changes nothing."""
    with experiment_site(tmp_path_factory.mktemp("steady")) as made:
        assert made.reload(HALVES).status_code == 200
        yield made


def test_two_workers_deal_alike_and_count_together(site: ExperimentSite) -> None:
    assert site.reload(HALVES).status_code == 200
    assert all("[DONE]" in answer for answer in site.send(100))
    status = site.wait_counted()
    assert status["a"]["outcomes"] == {"ok": len(site.old.received)}
    assert status["b"]["outcomes"] == {"ok": len(site.new.received)}
    assert min(len(site.old.received), len(site.new.received)) > 20


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("gone", id="the section is taken out of the file"),
        pytest.param("stop", id="it is stopped by hand"),
        pytest.param("promote", id="arm b gets all traffic"),
        pytest.param("ratio", id="arm b gets none"),
    ],
)
def test_requests_that_wait_when_the_experiment_changes_are_answered(
    site: ExperimentSite, then: str
) -> None:
    assert site.reload(_ONE_AT_A_TIME + HALVES).status_code == 200
    site.old.behaviour = site.new.behaviour = Behaviour(tokens=3, hold_at=0)
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(site.send, 40)
        wait_until(
            lambda: any(site.gateway.replica(name)["held"] for name in ("old", "new")),
            "some requests are held",
        )
        if then in ("stop", "promote"):
            changed = site.post(f"/api/v1/experiment/{then}")
        else:
            section = "" if then == "gone" else HALVES + "ratio = 0.0\n"
            changed = site.reload(_ONE_AT_A_TIME + section)
        site.old.release()
        site.new.release()
        assert changed.status_code == 200
        assert all("[DONE]" in answer for answer in answers.result(60))


def test_orders_and_reloads_that_cross_leave_one_of_them_in_force(site: ExperimentSite) -> None:
    """Whatever comes last counts, for the status and for the traffic alike."""

    def order(number: int) -> int:
        if number % 3 == 0:
            return site.reload(f"{HALVES}seed = {number}\n").status_code
        return site.post(f"/api/v1/experiment/{('promote', 'stop')[number % 2]}").status_code

    assert site.reload(HALVES).status_code == 200
    with ThreadPoolExecutor(4) as pool:
        codes = set(pool.map(order, range(24)))
    assert codes <= {200, 409}  # 409: there was none to stop or promote
    assert site.post("/api/v1/experiment/start").status_code == 200
    assert site.post("/api/v1/experiment/promote").status_code == 200
    assert site.status()["ratio"] == 1.0
    before = len(site.old.received)
    assert all("[DONE]" in answer for answer in site.send(20))
    assert len(site.old.received) == before


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_ratio_of_nothing_or_all(site: ExperimentSite, ratio: float) -> None:
    assert site.reload(f"{HALVES}ratio = {ratio}\n").status_code == 200
    assert all("[DONE]" in answer for answer in site.send(20))
    status = site.wait_counted()
    assert (status["a"]["requests"], status["b"]["requests"]) == ((0, 20) if ratio else (20, 0))
    assert status["verdict"] == "not_yet"


def test_an_arms_replicas_may_leave_the_configuration(site: ExperimentSite) -> None:
    """An experiment that was begun by hand is not in the file, so no reload can be refused."""
    document = {"name": "hand", "replicas": ["new"]}
    assert site.post("/api/v1/experiment/start", document).status_code == 200
    assert all("[DONE]" in answer for answer in site.send(10))
    text = site.path.read_text()
    for gone in ("new", "old"):
        engines = [each for each in text.split("[[engines]]") if f'name = "{gone}"' not in each]
        site.path.write_text("[[engines]]".join(engines))
        assert site.post("/api/v1/config/reload").status_code == 200
        assert all("[DONE]" in answer for answer in site.send(10))


def test_nobody_without_the_token_changes_it(site: ExperimentSite) -> None:
    assert site.reload(HALVES).status_code == 200
    for what in ("start", "stop", "promote"):
        url = f"{site.gateway.listening.admin_url}/api/v1/experiment/{what}"
        assert httpx.post(url, **LOCAL).status_code == 401
        # Not even through the data plane's port.
        assert (
            httpx.post(f"{site.gateway.root}/api/v1/experiment/{what}", **LOCAL).status_code == 404
        )
    assert site.status()["state"] == "running"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ('name = "x"\nreplicas = ["old", "new"]', "arm a needs the others"),
        ('name = "x"\nreplicas = ["newer"]', "names of replicas: old, new"),
        ('name = "x"', "something in which arm b is different"),
        ('name = ""\nreplicas = ["new"]', "1 to 64 characters"),
        ('name = "x"\nreplicas = "new"', "experiment.replicas"),
        ('name = "x"\nreplicas = ["new"]\nratio = nan', "experiment.ratio"),
        ('name = "x"\nreplicas = ["new"]\nsteps = []', "one share at least"),
        ('name = "x"\nreplicas = ["new"]\nsteps = [0.5, 0.5]', "shares that grow"),
        ('name = "x"\nreplicas = ["new"]\nsteps = [nan]', "shares that grow"),
        ('name = "x"\nreplicas = ["new"]\nstep_time_min_s = inf', "experiment.step_time_min_s"),
        ('name = "x"\nreplicas = ["new"]\nsticky = "user"', "experiment.sticky"),
        ('name = "x"\nreplicas = ["new"]\nrepicas = 1', "repicas"),
        (
            'name = "x"\n[experiment.governor]\npolicy = "magic"',
            "experiment.governor.policy: got 'magic'",
        ),
        ('name = "x"\n[experiment.routing]\naffinity_slack_s = -1', "affinity_slack_s"),
    ],
)
def test_a_section_that_is_not_in_order_is_refused_and_the_old_one_goes_on(
    steady: ExperimentSite, section: str, said: str
) -> None:
    refused = steady.reload(f"[experiment]\n{section}\n")
    assert refused.status_code == 422, refused.text
    assert said in refused.json()["error"]["message"]
    assert steady.status()["name"] == "halves"
