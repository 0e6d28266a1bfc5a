"""Spend by tenant, and budgets in the units that people give them in."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.control.lending import BudgetState
from mileage.gateway.admin.governor_metrics import governed_families
from mileage.gateway.admin.spend import TENANTS_MAX, budget_rows, tenant_rows
from mileage.measure.metrics import Counter
from tests.support.synthetic_fleet import SyntheticFleet

REQUESTS = ("model", "endpoint", "tenant", "outcome")


def budget(**fields: Any) -> BudgetState:
    given: dict[str, Any] = {
        "account": "t/usd/day",
        "tenant": "t",
        "unit": "usd",
        "per": "day",
        "amount": 5_000_000_000,
        "spent": 1_500_000_000,
        "reserved": 500_000_000,
        "excess": 0,
        "window_ends_utc_s": 86_400,
        "possible_overshoot": 0,
        "uncertain": 0,
    }
    return BudgetState(**(given | fields))


def test_a_tenant_is_summed_over_models_and_endpoints() -> None:
    requests = Counter("mileage_requests_total", "R.", REQUESTS)
    requests.add(("m", "chat", "a", "ok"), 5)
    requests.add(("n", "chat", "a", "rejected"), 2)
    requests.add(("m", "chat", "b", "ok"), 1)
    gpu = Counter("mileage_gpu_seconds_total", "G.", ("model", "tenant"))
    gpu.add(("m", "b"), 3.5)
    gpu.add(("m", "a"), 1.0)
    gpu.add(("n", "a"), 0.25)
    output = Counter("mileage_output_tokens_total", "O.", ("model", "tenant"))
    output.add(("m", "a"), 70)
    rows, left_out = tenant_rows([each.snapshot() for each in (requests, gpu, output)])
    assert left_out == 0
    # Who used most comes first.
    assert [(row.tenant, row.requests, row.rejected, row.gpu_s) for row in rows] == [
        ("b", 1, 0, 3.5),
        ("a", 7, 2, 1.25),
    ]
    assert [(row.output_tokens, row.cost_usd) for row in rows] == [(None, None), (70, None)]


def test_many_tenants_are_bounded_and_the_rest_is_counted() -> None:
    requests = Counter("mileage_requests_total", "R.", REQUESTS)
    for number in range(TENANTS_MAX + 7):
        requests.add(("m", "chat", f"t{number}", "ok"), number + 1)
    rows, left_out = tenant_rows([requests.snapshot()])
    assert (len(rows), left_out) == (TENANTS_MAX, 7)
    assert rows[0].requests == TENANTS_MAX + 7


@pytest.mark.parametrize(
    ("state", "amount", "spent", "left"),
    [
        pytest.param(budget(), 5.0, 1.5, 3.0, id="USD are kept in billionths"),
        pytest.param(
            budget(unit="tokens", amount=1_000, spent=400, reserved=100),
            1_000,
            400,
            500,
            id="tokens",
        ),
        pytest.param(
            budget(unit="gpu_s", amount=60_000_000_000, spent=0, reserved=0),
            60.0,
            0.0,
            60.0,
            id="GPU-seconds",
        ),
        pytest.param(
            budget(uncertain=1_000_000_000), 5.0, 1.5, 2.0, id="what a dead worker held is not left"
        ),
        pytest.param(budget(spent=6_000_000_000, reserved=0), 5.0, 6.0, -1.0, id="overspent"),
    ],
)
def test_a_budget_in_its_unit(state: BudgetState, amount: float, spent: float, left: float) -> None:
    (row,) = budget_rows([state])
    assert (row.amount, row.spent, row.left) == (amount, spent, left)
    assert row.renews_utc_s == 86_400


def test_budgets_and_targets_are_metrics() -> None:
    fleet = SyntheticFleet()
    fleet.spends = [budget()]
    fleet.advance(1.0)
    found = {family.name: family.numbers for family in governed_families(fleet)}
    account = ("t", "usd", "day")
    assert found["mileage_target_seconds"] == {("*", "ttft"): 0.25, ("*", "itl"): 0.04}
    assert found["mileage_budget_amount"] == {account: 5.0}
    assert found["mileage_budget_spent"] == {account: 1.5}
    assert found["mileage_budget_reserved"] == {account: 0.5}
    assert found["mileage_budget_left"] == {account: 3.0}
    assert found["mileage_budget_renews_timestamp_seconds"] == {account: 86_400}
    assert governed_families(SyntheticFleet(pids=())) == []
