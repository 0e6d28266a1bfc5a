"""What is held: its sums, whose turn it is, and what a replica's throttle keeps count of."""

from __future__ import annotations

from random import Random

import pytest

from mileage.control.config import ControlConfig
from mileage.control.fair_queue import FairQueue, FairShare, next_held
from mileage.control.first_limit import make_throttle
from mileage.control.flight import Flight
from mileage.control.pool import Pool
from mileage.control.replicas import Route
from tests.support.controllers import request


def flight(request_id: int, share: FairShare, tenant: str = "t", cost: float = 10.0) -> Flight:
    asked, route = request(request_id, tenant=tenant), Route()
    made = Flight(asked, route, route, Pool(), cost, cost, cost, None, request_id, 60.0)
    made.flow = share.flow(tenant, "normal", 1.0)
    return made


def test_the_sums_are_those_of_what_is_held_whatever_came_and_went() -> None:
    random, share = Random(1), FairShare()
    queue = FairQueue(Route(), share)
    held: list[Flight] = []
    for i in range(500):
        if held and random.random() < 0.5:
            queue.remove(held.pop(random.randrange(len(held))))
        else:
            held.append(flight(i, share, random.choice("abc"), random.random() * 100))
            queue.push(held[-1])
        assert queue.count == len(held) == len(list(queue))
        assert queue.work == pytest.approx(sum(each.cost for each in held))
        for name in "abc":
            own = [each for each in held if each.request.tenant == name]
            flow = share.flow(name, "normal", 1.0)
            assert queue.waiting(flow) == pytest.approx(sum(each.cost for each in own), abs=1e-6)
            if own:
                assert queue.head(flow) is min(own, key=lambda each: each.deadline_s)
                assert queue.last(flow) is max(own, key=lambda each: each.deadline_s)


def test_who_was_away_gets_nothing_for_the_past() -> None:
    share = FairShare()
    queue = FairQueue(Route(), share)
    served = ""
    for i in range(60):
        queue.push(flight(i, share, "a"))
    late = [flight(100 + i, share, "b") for i in range(20)]
    for i in range(60):
        if i == 20:
            for each in late:
                queue.push(each)
        found = next_held((queue,), 0.0)
        assert found is not None
        queue.remove(found)
        share.charge(found.flow, found.cost)
        served += found.request.tenant
    assert served[:20] == "a" * 20
    assert abs(served[20:40].count("a") - 10) <= 1


def test_what_ended_is_no_work_and_no_prefill_at_the_replica() -> None:
    throttle, share = make_throttle(ControlConfig()), FairShare()
    flights = [flight(i, share, cost=10.0 * (i + 1)) for i in range(3)]
    for each in flights:
        throttle.started(each, 0.0)
    assert (throttle.cost, throttle.prefill_tokens) == (60.0, 60.0)
    throttle.ended(flights[0], 1.0)  # before its first token
    assert (throttle.cost, throttle.prefill_tokens) == (50.0, 50.0)
    throttle.first_token(flights[1], 1.0)
    throttle.ended(flights[1], 2.0)
    assert (throttle.cost, throttle.prefill_tokens) == (30.0, 30.0)
