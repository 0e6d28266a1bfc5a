"""Control API of the experiment: who may call it, what it refuses, and what it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.admin_plane import AdminPlane
from tests.support.asgi import Answer
from tests.support.toy_arms import DeskSite

PATH = "/api/v1/experiment"
AB = {"name": "halves", "replicas": ["h100-b:8000"]}


class _Plane:
    def __init__(self) -> None:
        self.plane, self.site = AdminPlane(), DeskSite()
        self.plane.fleet.experiments = self.site.desk

    def post(self, what: str, document: Any = None, **options: Any) -> Answer:
        body = b"" if document is None else json.dumps(document).encode()
        return self.plane.call(f"{PATH}/{what}", method="POST", body=body, **options)

    def state(self) -> str:
        found: str = json.loads(self.plane.call(PATH).body)["state"]
        return found


@pytest.fixture
def plane() -> _Plane:
    return _Plane()


def code(answer: Answer) -> str:
    found: str = json.loads(answer.body)["error"]["code"]
    return found


@pytest.mark.parametrize("what", ["start", "stop", "promote"])
def test_nobody_changes_it_without_the_token(plane: _Plane, what: str) -> None:
    assert plane.post("start", AB).status == 200
    assert plane.post(what, AB, token=None).status == 401
    assert plane.post(what, AB, token="another-token-of-some-length").status == 401
    assert plane.plane.call(PATH, token=None).status == 401
    assert plane.plane.call(f"{PATH}/{what}").status == 405
    assert plane.state() == "running"
    assert plane.site.ratio == 0.5


def test_it_is_started_shown_promoted_and_stopped(plane: _Plane) -> None:
    assert plane.state() == "none"
    started = json.loads(plane.post("start", AB).body)
    assert (started["state"], started["name"], started["ratio"]) == ("running", "halves", 0.5)
    plane.site.seconds(3)
    shown = json.loads(plane.plane.call(PATH).body)
    assert shown["b"]["requests"] == 60
    assert shown["verdict"] == "not_yet"
    assert json.loads(plane.post("promote").body)["ratio"] == 1.0
    assert json.loads(plane.post("stop").body)["state"] == "stopped"


@pytest.mark.parametrize("what", ["stop", "promote"])
def test_where_none_runs_there_is_nothing_to_end(plane: _Plane, what: str) -> None:
    answer = plane.post(what)
    assert (answer.status, code(answer)) == (409, "no_experiment")


@pytest.mark.parametrize(
    ("document", "status", "key"),
    [
        pytest.param({**AB, "replicas": ["nobody"]}, 422, "experiment.replicas", id="unknown name"),
        pytest.param(
            {**AB, "replicas": ["h100-a:8000", "h100-b:8000", "h100-c:8000"]},
            422,
            "experiment.replicas",
            id="all replicas",
        ),
        pytest.param({"name": "x"}, 422, "experiment.replicas", id="nothing is different in arm b"),
        pytest.param({**AB, "name": " "}, 422, "experiment.name", id="a name of nothing"),
        pytest.param({"replicas": ["h100-b:8000"]}, 422, "experiment.name", id="no name"),
        pytest.param({**AB, "ratio": 1.5}, 422, "experiment.ratio", id="more than all traffic"),
        pytest.param({**AB, "steps": [0.5, 0.1]}, 422, "experiment.steps", id="steps that fall"),
        pytest.param({**AB, "nonsense": 1}, 400, None, id="an unknown key"),
        pytest.param([AB], 400, None, id="a list"),
        pytest.param("halves", 400, None, id="a string"),
    ],
)
def test_what_is_no_experiment_is_refused_and_changes_nothing(
    plane: _Plane, document: Any, status: int, key: str | None
) -> None:
    answer = plane.post("start", document)
    assert answer.status == status, answer.body
    assert json.loads(answer.body)["error"]["param"] == key
    assert plane.state() == "none"
    assert plane.site.told == []


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b'{"name": "\\ud800"}', b'{"ratio": 1e999}'])
def test_what_is_no_json_is_refused(plane: _Plane, body: bytes) -> None:
    answer = plane.plane.call(f"{PATH}/start", method="POST", body=body)
    assert (answer.status, code(answer)) == (400, "invalid_body")


def test_a_body_beyond_reason_is_refused(plane: _Plane) -> None:
    answer = plane.plane.call(f"{PATH}/start", method="POST", body=b" " * 70_000)
    assert (answer.status, code(answer)) == (413, "too_large")


def test_while_the_gateway_starts_it_cannot_be_changed(plane: _Plane) -> None:
    plane.plane.fleet.experiments = None
    assert plane.state() == "none"
    for what in ("start", "stop", "promote"):
        answer = plane.post(what)
        assert (answer.status, code(answer)) == (503, "not_now")


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_all_or_nothing_is_a_ratio_too(plane: _Plane, ratio: float) -> None:
    assert plane.post("start", {**AB, "ratio": ratio}).status == 200
    plane.site.seconds(5, a=0 if ratio else 20, b=20 if ratio else 0)
    shown = json.loads(plane.plane.call(PATH).body)
    assert (shown["ratio"], shown["verdict"], shown["blocks"]) == (ratio, "not_yet", 0)


def test_the_dashboards_updates_and_the_metrics_have_it(plane: _Plane) -> None:
    plane.post("start", AB)
    metrics = plane.plane.call("/metrics").body.decode()
    assert 'mileage_experiment_ratio{experiment="halves"} 0.5' in metrics
