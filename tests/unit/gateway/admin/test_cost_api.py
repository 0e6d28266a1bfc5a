"""The API of costs: one view at a time, kept for a moment, and errors that name what was wrong."""

from __future__ import annotations

import pytest

from mileage.core.errors import LedgerError
from mileage.ledger.cost_view import CostView
from tests.support.admin_plane import AdminPlane
from tests.support.synthetic_costs import SyntheticCosts


def test_costs_are_those_of_the_last_day_by_tenant_unless_asked_otherwise() -> None:
    costs = SyntheticCosts()
    document = AdminPlane(costs=costs).call("/api/v1/cost").json()
    assert costs.asked == [("24h", "tenant")]
    assert (document["by"], document["step"], len(document["periods"])) == ("tenant", "hour", 24)
    whole = document["gpu_ns_total"]
    assert sum(a["gpu_ns"] for a in document["accounts"]) + document["idle_gpu_ns"] == whole
    assert sum(part["gpu_ns"] for part in document["where"].values()) == whole


def test_a_view_is_kept_for_a_moment() -> None:
    costs = SyntheticCosts()
    plane = AdminPlane(costs=costs)
    bodies = [plane.call("/api/v1/cost?window=7d&by=model").body for _ in range(3)]
    assert len(set(bodies)) == len(costs.asked) == 1
    plane.call("/api/v1/cost?window=7d&by=key")
    plane.now_s += 11
    plane.call("/api/v1/cost?window=7d&by=model")
    assert costs.asked == [("7d", "model"), ("7d", "key"), ("7d", "model")]


def test_a_view_that_took_long_is_kept_longer() -> None:
    class Slow(SyntheticCosts):
        def read(self, window: str, by: str) -> CostView:
            plane.now_s += 3.0
            return super().read(window, by)

    costs = Slow()
    plane = AdminPlane(costs=costs)
    for passed_s in (0, 50, 5, 10):
        plane.now_s += passed_s
        plane.call("/api/v1/cost")
    assert len(costs.asked) == 2


@pytest.mark.parametrize(
    ("query", "param"),
    [
        pytest.param("window=yesteryear", "window", id="a time that is none"),
        pytest.param("by=colour", "by", id="no kind of account"),
        pytest.param("window=" + 101 * "x", "window", id="a text too long"),
    ],
)
def test_what_cannot_be_asked_is_named(query: str, param: str) -> None:
    answer = AdminPlane(costs=SyntheticCosts()).call(f"/api/v1/cost?{query}")
    assert (answer.status, answer.json()["error"]["param"]) == (400, param)


def test_a_ledger_that_cannot_be_read_is_told_and_read_again() -> None:
    costs = SyntheticCosts()
    plane = AdminPlane(costs=costs)
    costs.error = LedgerError("/ledger", "is locked")
    answer = plane.call("/api/v1/cost")
    assert (answer.status, answer.json()["error"]["code"]) == (503, "not_now")
    assert "is locked" in answer.json()["error"]["message"]
    costs.error = None
    assert plane.call("/api/v1/cost").status == 200


def test_without_a_ledger_there_are_no_costs() -> None:
    answer = AdminPlane().call("/api/v1/cost")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "no_ledger")
    assert "keeps no ledger" in answer.json()["error"]["message"]


def test_costs_are_for_those_with_the_token() -> None:
    plane = AdminPlane(costs=SyntheticCosts())
    assert plane.call("/api/v1/cost", token=None).status == 401
    page = plane.call("/cost", token=None)
    assert (page.status, page.headers["location"]) == (303, "/login")
    page = plane.call("/cost", headers={"cookie": plane.cookie()}, token=None)
    assert (page.status, page.body) == (200, b"<h1>costs</h1>")
