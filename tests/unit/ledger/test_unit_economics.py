"""What a right answer costs: with people, with errors, and only where all of it is known."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.ledger.bill import Account
from mileage.ledger.bill_sums import Amount, UseSums
from mileage.ledger.unit_economics import (
    EconomicsFile,
    ModelEconomics,
    ModelFacts,
    facts_with,
    unit_economics,
)
from tests.support.usage_rows import usage


def account(name: str, *, usd: float | None = 8.0, requests: int = 110) -> Account:
    """Ten requests failed; half a GPU-day of use, half of idle time."""
    use, idle = UseSums(), Amount()
    nano_usd = None if usd is None else round(usd * 1e9 / 2)
    row = usage(requests=requests, requests_failed=10, gpu_ns=43_200_000_000_000)
    use.add_row(row, nano_usd)
    idle.add(43_200_000_000_000, nano_usd)
    total = Amount()
    total.take(use)
    total.take(idle)
    return Account(name=name, total=total, use=use, spread=idle)


def row_of(facts: ModelFacts, *, review_usd: float | None = None) -> ModelEconomics:
    file = EconomicsFile(models={"m": facts}, review_usd=review_usd)
    return unit_economics([account("m")], file)[1][0]


def test_an_answer_costs_gpus_and_people_by_its_accuracy() -> None:
    row = row_of(ModelFacts(accuracy_ratio=0.8, review_ratio=0.25), review_usd=2.0)
    assert row.usd_per_request == pytest.approx(0.08)
    assert row.use_usd_per_request == pytest.approx(0.04)
    assert row.review_usd_per_request == pytest.approx(0.5)
    assert row.usd_per_answer == pytest.approx(0.58)
    assert row.usd_per_correct_answer == pytest.approx(0.725)
    assert row.requests_per_gpu_day == pytest.approx(100)
    assert row.requests_per_gpu_day_busy == pytest.approx(200)
    assert row.cost_ratio == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("facts", "per_answer", "per_correct"),
    [
        pytest.param(ModelFacts(), 0.08, None, id="nothing told: no reviews, no right ones"),
        pytest.param(ModelFacts(review_ratio=0.1), None, None, id="reviews at an unknown wage"),
        pytest.param(ModelFacts(review_ratio=0.0), 0.08, None, id="no reviews need no wage"),
        pytest.param(ModelFacts(accuracy_ratio=0.0), 0.08, None, id="never right: no such cost"),
        pytest.param(
            ModelFacts(review_ratio=0.5, review_usd=0.04), 0.10, None, id="a wage of its own"
        ),
    ],
)
def test_what_is_not_told_is_not_known(
    facts: ModelFacts, per_answer: float | None, per_correct: float | None
) -> None:
    row = row_of(facts)
    assert row.usd_per_answer == (None if per_answer is None else pytest.approx(per_answer))
    assert row.usd_per_correct_answer == per_correct


def test_a_model_without_a_price_has_requests_per_card_all_the_same() -> None:
    row = unit_economics([account("m", usd=None)], EconomicsFile())[1][0]
    assert row.usd_per_request is None
    assert row.cost_ratio is None
    assert row.requests_per_gpu_day == pytest.approx(100)


def test_models_are_compared_with_the_baseline_and_accounts_of_ours_are_none() -> None:
    facts = EconomicsFile(models={"x": ModelFacts(usd_per_request=0.16)})
    accounts = [account("m"), account("(warm-up)"), account("n", requests=20)]
    name, rows = unit_economics(accounts, facts)
    assert name == "m"
    assert {row.model: row.cost_ratio for row in rows} == {
        "m": pytest.approx(1.0),
        "n": pytest.approx(10.0),
        "x": pytest.approx(2.0),
    }
    with pytest.raises(ConfigError, match="m, n, x"):
        unit_economics(accounts, facts, baseline="y")


def test_options_go_before_the_file_and_are_checked_as_it_is() -> None:
    file = EconomicsFile(models={"m": ModelFacts(accuracy_ratio=0.5, review_ratio=0.1)})
    found = facts_with(file, {"accuracy_ratio": {"m": 0.9, "n": 0.7}})
    assert found.models["m"] == ModelFacts(accuracy_ratio=0.9, review_ratio=0.1)
    assert found.models["n"].accuracy_ratio == 0.7
    with pytest.raises(ConfigError, match="accuracy_ratio"):
        ModelFacts(accuracy_ratio=1.1)
