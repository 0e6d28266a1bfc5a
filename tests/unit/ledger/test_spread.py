"""Who pays for idle time: users of the same pool, or those who left what they had reserved."""

from __future__ import annotations

import pytest

from mileage.ledger.bill_sums import Amount
from mileage.ledger.spread import pools, spread_by_reservation, spread_by_use


def idle(gpu_ns: int, nano_usd: int = 0) -> Amount:
    return Amount(gpu_ns, nano_usd)


def paid_ns(paid: dict[str, Amount]) -> dict[str, int]:
    return {name: amount.gpu_ns for name, amount in paid.items()}


def test_idle_time_of_a_replica_is_paid_by_the_users_of_its_models() -> None:
    use = {"small": {"a": 30, "b": 10}, "large": {"c": 1}}
    models = {"small": {"8b"}, "large": {"70b"}}
    paid, left = spread_by_use({"small": idle(8), "large": idle(1000)}, use, models)
    assert paid_ns(paid) == {"a": 6, "b": 2, "c": 1000}
    assert left == {}


def test_replicas_of_one_model_are_one_pool() -> None:
    use = {"r1": {"a": 10}, "r2": {"b": 30}}
    models = {"r1": {"m"}, "r2": {"m", "n"}}
    paid, _ = spread_by_use({"r1": idle(100)}, use, models)
    assert paid_ns(paid) == {"a": 25, "b": 75}


def test_a_replica_that_nobody_used_is_paid_by_all() -> None:
    paid, _ = spread_by_use({"idle": idle(10)}, {"r": {"a": 1, "b": 1}}, {"r": {"m"}})
    assert paid_ns(paid) == {"a": 5, "b": 5}


def test_where_nobody_used_anything_idle_time_stays() -> None:
    paid, left = spread_by_use({"r": idle(10)}, {}, {})
    assert paid == {}
    assert paid_ns(left) == {"r": 10}


def test_pools_join_by_way_of_others() -> None:
    found = pools({"a": {"x"}, "b": {"x", "y"}, "c": {"y"}, "d": {"z"}, "e": set()})
    assert found["a"] == found["b"] == found["c"]
    assert len(set(found.values())) == 3


def test_a_replica_and_a_model_of_one_name_are_two_things() -> None:
    found = pools({"m": {"x"}, "r": {"m"}})
    assert found["m"] != found["r"]


@pytest.mark.parametrize(
    ("reserved", "used", "wasted", "expected", "left"),
    [
        pytest.param({"a": 10}, {"a": 4}, 50, {"a": 6}, 44, id="for what it left, and no more"),
        pytest.param({"a": 10}, {"a": 40}, 50, {}, 50, id="nothing where it used more"),
        pytest.param({"a": 30, "b": 10}, {}, 8, {"a": 6, "b": 2}, 0, id="all that there is"),
        pytest.param({"a": 10}, {}, 0, {}, 0, id="where nothing was idle nobody pays"),
    ],
)
def test_reservations_pay_for_what_they_did_not_use(
    reserved: dict[str, int],
    used: dict[str, int],
    wasted: int,
    expected: dict[str, int],
    left: int,
) -> None:
    paid, rest = spread_by_reservation([idle(wasted, 2 * wasted)], reserved, used)
    assert paid_ns(paid) == expected
    assert sum(amount.gpu_ns for amount in rest) == left
    money = [amount.nano_usd for amount in (*paid.values(), *rest)]
    assert sum(money) == 2 * wasted
