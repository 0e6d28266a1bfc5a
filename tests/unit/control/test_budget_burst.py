"""A burst against a budget: nothing is overspent, and nearly all of it is used."""

from __future__ import annotations

from random import Random

import pytest

from mileage.control.budgets import BudgetRefusal
from mileage.policy.tenants import BudgetConfig, TenantLimits
from tests.support.budget_world import BudgetWorld
from tests.support.controllers import request

REQUESTS = 500
COST = 30
BUDGET = 100 * COST


def burst(workers: int, *, most: int, likely: int, seed: int) -> BudgetWorld:
    """500 requests at once, spread over the workers; they end in any order, as messages go."""
    random = Random(seed)
    budget = BudgetConfig(amount=BUDGET, unit="tokens", per="day")
    world = BudgetWorld({"acme": TenantLimits(budgets=(budget,))}, utc_s=1000.0)
    numbers = [world.start_worker() for _ in range(workers)]
    world.found(0)
    for request_id in range(REQUESTS):
        one = random.choice(numbers)
        world.arrive(one, request(request_id), COST, most, likely)
    while True:
        steps = [
            (step, (number,))
            for number, worker in world.workers.items()
            for queue, step in (
                (worker.to_treasury, world.step_up),
                (worker.from_treasury, world.step_down),
            )
            if queue
        ]
        ends = [(n, r) for n, worker in world.workers.items() for r in worker.flights]
        if steps and (not ends or random.random() < 0.8):
            step, arguments = random.choice(steps)
            step(*arguments)
        elif ends:
            world.settle(*random.choice(ends))
        else:
            return world


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize(
    ("most", "likely"),
    [
        pytest.param(COST, COST, id="estimates that are true"),
        pytest.param(2 * COST, COST + 5, id="bounds of twice the truth"),
        pytest.param(6 * COST, 2 * COST, id="bounds of six times the truth"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_500_requests_at_once_against_a_budget_for_100(
    workers: int, most: int, likely: int, seed: int
) -> None:
    world = burst(workers, most=most, likely=likely, seed=seed)
    admitted = sum(1 for said in world.outcomes.values() if said == "ok")
    refused = [said for said in world.outcomes.values() if isinstance(said, BudgetRefusal)]
    assert 95 <= admitted <= 100
    assert len(refused) == REQUESTS - admitted
    assert list(world.charged.values()) == [admitted * COST]
