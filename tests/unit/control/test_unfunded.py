"""Requests that wait for their tenant's budget: in order, not for ever, and not without bound."""

from __future__ import annotations

import math

import pytest

from mileage.control.flight import Flight
from mileage.control.pool import Pool
from mileage.control.replicas import Route
from mileage.control.unfunded import Unfunded
from mileage.core.actions import Hold, Reject
from mileage.core.events import Arrived, Cancelled
from mileage.policy.tenants import BudgetConfig, TenantLimits
from tests.support.controllers import controller, request

BUDGET = BudgetConfig(amount=1000, unit="tokens", per="day")


def flight(request_id: int, tenant: str = "t", expires_s: float = 60.0) -> Flight:
    asked, route = request(request_id, tenant=tenant), Route()
    return Flight(asked, route, route, Pool(), 1.0, 1.0, 1.0, None, expires_s, expires_s)


def test_each_tenants_come_in_their_order() -> None:
    unfunded = Unfunded()
    first, second, other = flight(2), flight(1), flight(3, "u")
    for each in (first, second, other):
        unfunded.add(each)
    assert unfunded.first("t") is first
    unfunded.remove(first)
    assert (unfunded.first("t"), unfunded.first("u")) == (second, other)
    unfunded.remove(first)
    unfunded.remove(second)
    assert (unfunded.first("t"), unfunded.count("t"), unfunded.count("u")) == (None, 0, 1)


def test_those_that_waited_too_long_come_soonest_first_and_those_that_left_not_at_all() -> None:
    unfunded = Unfunded()
    flights = [flight(i, expires_s=expires_s) for i, expires_s in enumerate((9.0, 3.0, 5.0, 3.0))]
    for each in flights:
        unfunded.add(each)
    unfunded.remove(flights[1])
    found = []
    for each in unfunded.expired(5.0):
        found.append(each.request.id)
        unfunded.remove(each)
    assert (found, unfunded.due_s, bool(unfunded)) == ([3, 2], 9.0, True)
    unfunded.remove(flights[0])
    assert (unfunded.due_s, bool(unfunded)) == (math.inf, False)


def test_of_one_tenant_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mileage.control.dispatcher._UNFUNDED_MAX", 2)
    limits = TenantLimits(budgets=(BUDGET,), concurrency_max=3)
    c = controller("a", tenants={"t": limits, "u": limits})

    def first_said(request_id: int, tenant: str) -> object:
        return c.handle(Arrived(request(request_id, tenant=tenant, output_tokens_max=9)), 0.0)[0]

    assert [type(first_said(i, "t")) for i in (1, 2)] == [Hold, Hold]
    for i in (3, 4):
        said = first_said(i, "t")
        assert isinstance(said, Reject)
        assert said.reason == "budget_exhausted"  # it is not counted as one of the three
    assert isinstance(first_said(5, "u"), Hold)
    c.handle(Cancelled(1), 0.1)
    assert isinstance(first_said(6, "t"), Hold)
