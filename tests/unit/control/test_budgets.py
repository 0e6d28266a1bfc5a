"""A worker's leases: what may be reserved, what must wait, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.control.accounts import AccountSpend
from mileage.control.budgets import BudgetRefusal, Budgets
from mileage.control.spend import Estimate, Spend
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.events import BudgetGranted, BudgetRecalled
from mileage.policy.tenants import BudgetConfig, BudgetPeriod, BudgetUnit, TenantLimits
from tests.support.controllers import request

DAY = "acme/tokens/day"


def limits(*budgets: tuple[float, BudgetUnit, BudgetPeriod]) -> dict[str, TenantLimits]:
    made = tuple(BudgetConfig(amount=a, unit=unit, per=per) for a, unit, per in budgets)
    return {"acme": TenantLimits(budgets=made)}


def spend(tokens: int, gpu_ns: int = 0, nano_usd: int | None = 0) -> Spend:
    return Spend(tokens, gpu_ns, nano_usd)


def reserve(budgets: Budgets, request_id: int, most: int, likely: int | None = None) -> Any:
    estimate = Estimate(spend(most), spend(most if likely is None else likely))
    return budgets.reserve(request(request_id), estimate, 0.0)


def leased(amount: int, *, last: bool = False, budget: int = 100) -> Budgets:
    budgets = Budgets(limits((budget, "tokens", "day")))
    grant(budgets, amount, last=last)
    budgets.take_ready()
    return budgets


def grant(
    budgets: Budgets, amount: int, *, window: int = 7, last: bool = False, now_s: float = 0.0
) -> None:
    budgets.granted(BudgetGranted(DAY, window, amount, 3600.0, last), now_s)


def state(budgets: Budgets) -> tuple[int, int]:
    (found,) = (s for s in budgets.spends() if s.window == 7)
    return found.spent, found.reserved


def test_tenants_without_budgets_have_nothing_to_reserve() -> None:
    budgets = Budgets({"acme": TenantLimits()})
    assert reserve(budgets, 1, 10**12) == "ok"
    assert not budgets.has("acme")
    budgets.settle(1, spend(5), 0.0)
    assert budgets.spends() == ()


def test_the_first_request_asks_the_treasury_and_waits() -> None:
    budgets = Budgets(limits((100, "tokens", "day")))
    assert reserve(budgets, 1, 10) == "wait"
    assert reserve(budgets, 2, 10) == "wait"
    assert budgets.take_actions() == [AskBudget(DAY, -1, 10)]
    assert budgets.take_actions() == []
    grant(budgets, 50)
    assert budgets.take_ready() == ("acme",)
    assert reserve(budgets, 1, 10) == "ok"


def test_what_is_reserved_is_charged_at_the_end_and_the_rest_is_free_again() -> None:
    budgets = leased(100, last=True)
    assert reserve(budgets, 1, 80) == "ok"
    assert reserve(budgets, 2, 30) == "wait"
    assert not budgets.ready
    budgets.settle(1, spend(20), 0.0)
    assert budgets.take_ready() == ("acme",)
    assert reserve(budgets, 2, 30) == "ok"
    assert state(budgets) == (20, 30)


def test_a_request_that_was_never_sent_costs_nothing() -> None:
    budgets = leased(100, last=True)
    reserve(budgets, 1, 80)
    budgets.release(1)
    assert budgets.ready
    assert state(budgets) == (0, 0)


def test_reserving_twice_and_settling_twice_is_once() -> None:
    budgets = leased(100)
    assert [reserve(budgets, 1, 60), reserve(budgets, 1, 60)] == ["ok", "ok"]
    budgets.settle(1, spend(50), 0.0)
    budgets.settle(1, spend(50), 0.0)
    assert state(budgets) == (50, 0)


def test_what_was_spent_above_the_estimate_is_booked_and_shown() -> None:
    budgets = leased(100, last=True)
    reserve(budgets, 1, 60)
    budgets.settle(1, spend(130), 0.0)
    (told,) = budgets.spends()
    assert told == AccountSpend(account=DAY, window=7, spent=130, reserved=0, excess=70)
    assert isinstance(reserve(budgets, 2, 1), BudgetRefusal)


def test_a_refusal_tells_the_budget_what_is_left_and_when_it_renews() -> None:
    budgets = leased(100, last=True)
    reserve(budgets, 1, 95)
    budgets.settle(1, spend(95), 0.0)
    said = reserve(budgets, 2, 10)
    assert said == BudgetRefusal(
        3600.0,
        "tenant 'acme' has used up its budget of 100 tokens per day: this request may need "
        "10 tokens, 5 tokens are left; the next day (UTC) begins in 60 min",
    )


def test_more_than_the_whole_budget_is_refused_for_good() -> None:
    said = reserve(leased(100), 1, 101)
    assert isinstance(said, BudgetRefusal)
    assert said.retry_after_s is None
    assert "fewer output tokens" in said.detail


def test_the_last_of_a_budget_goes_to_likely_costs_one_at_a_time() -> None:
    budgets = leased(100, last=True)
    assert reserve(budgets, 1, 90, 40) == "ok"
    assert reserve(budgets, 2, 90, 40) == "wait"
    budgets.settle(1, spend(40), 0.0)
    assert reserve(budgets, 2, 90, 40) == "ok"
    assert state(budgets) == (40, 40)
    assert reserve(budgets, 3, 90, 15) == "wait"


def test_what_cannot_be_free_even_when_all_has_ended_is_refused_at_once() -> None:
    budgets = leased(100, last=True)
    reserve(budgets, 1, 90)
    budgets.settle(1, spend(90), 0.0)
    reserve(budgets, 2, 8)
    assert isinstance(reserve(budgets, 3, 11), BudgetRefusal)
    assert reserve(budgets, 4, 10) == "wait"


def test_all_budgets_hold_or_none_is_reserved() -> None:
    budgets = Budgets(limits((100, "tokens", "day"), (1.0, "gpu_s", "hour")))
    grant(budgets, 100, last=True)
    budgets.granted(BudgetGranted("acme/gpu_s/hour", 3, 5, 60.0, True), 0.0)
    estimate = Estimate(spend(10, gpu_ns=6), spend(10, gpu_ns=6))
    said = budgets.reserve(request(1), estimate, 0.0)
    assert isinstance(said, BudgetRefusal)
    assert said.retry_after_s == 60.0
    assert "GPU-seconds" in said.detail
    assert state(budgets) == (0, 0)


def test_usd_and_gpu_time_are_charged_to_their_budgets() -> None:
    budgets = Budgets(limits((1e-6, "usd", "month"), (1e-6, "gpu_s", "day")))
    budgets.granted(BudgetGranted("acme/usd/month", 1, 1000, 1e6), 0.0)
    budgets.granted(BudgetGranted("acme/gpu_s/day", 1, 1000, 1e4), 0.0)
    estimate = Estimate(spend(9, 600, 700), spend(9, 600, 700))
    assert budgets.reserve(request(1), estimate, 0.0) == "ok"
    budgets.settle(1, spend(9, 500, 400), 0.0)
    assert {s.account: s.spent for s in budgets.spends()} == {
        "acme/usd/month": 400,
        "acme/gpu_s/day": 500,
    }


def test_a_new_window_voids_the_lease_and_old_reservations_are_charged_to_the_old_one() -> None:
    budgets = leased(100)
    reserve(budgets, 1, 60)
    grant(budgets, 30, window=8)
    assert reserve(budgets, 2, 31) == "wait"
    assert reserve(budgets, 3, 30) == "ok"
    budgets.settle(1, spend(50), 0.0)
    spent = {s.window: (s.spent, s.reserved) for s in budgets.spends()}
    assert spent == {7: (50, 0), 8: (0, 30)}
    assert {s.window for s in budgets.spends()} == {8}


def test_a_window_that_is_over_by_our_clock_is_asked_for_anew() -> None:
    budgets = leased(100, last=True)
    estimate = Estimate(spend(10), spend(10))
    assert budgets.reserve(request(1), estimate, 3600.0) == "wait"
    # Given back as well: should only our clock have leapt, the treasury still counts on it.
    assert budgets.take_actions() == [AskBudget(DAY, 7, 10), ReturnBudget(DAY, 7, 100)]


def test_what_is_free_in_a_window_that_is_over_is_never_reserved() -> None:
    budgets = leased(100)
    reserve(budgets, 1, 100)
    estimate = Estimate(spend(10), spend(10))
    assert budgets.reserve(request(2), estimate, 4000.0) == "wait"
    budgets.settle(1, spend(5), 4000.0)
    assert budgets.reserve(request(2), estimate, 4000.0) == "wait"


def test_recalled_leases_are_given_back_now_and_as_more_becomes_free() -> None:
    budgets = leased(100)
    reserve(budgets, 1, 40)
    reserve(budgets, 2, 20)
    budgets.recalled(BudgetRecalled(DAY, 7))
    assert budgets.take_actions() == [ReturnBudget(DAY, 7, 40)]
    budgets.settle(1, spend(10), 0.0)
    assert budgets.take_actions() == [ReturnBudget(DAY, 7, 30)]
    budgets.settle(2, spend(20), 0.0)
    assert budgets.take_actions() == [ReturnBudget(DAY, 7, 0)]
    assert budgets.take_actions() == []


def test_what_was_given_back_may_come_back_and_is_asked_for() -> None:
    budgets = leased(100, last=True)
    reserve(budgets, 1, 40)
    budgets.recalled(BudgetRecalled(DAY, 7))
    assert budgets.take_actions() == [ReturnBudget(DAY, 7, 60)]
    assert reserve(budgets, 2, 50) == "wait"
    assert budgets.take_actions() == [AskBudget(DAY, 7, 50)]


def test_recalls_of_old_windows_and_unknown_accounts_are_ignored() -> None:
    budgets = leased(100)
    budgets.recalled(BudgetRecalled(DAY, 6))
    budgets.recalled(BudgetRecalled("nobody/tokens/day", 7))
    assert budgets.take_actions() == []


def test_a_grant_for_an_account_that_is_gone_is_given_back() -> None:
    budgets = leased(100)
    budgets.granted(BudgetGranted("nobody/tokens/day", 7, 5, 1.0), 0.0)
    assert budgets.take_actions() == [ReturnBudget("nobody/tokens/day", 7, 5)]


def test_a_budget_that_a_reload_takes_away_is_given_back_and_holds_no_more() -> None:
    budgets = leased(100)
    reserve(budgets, 1, 30)
    budgets.reconfigure({"acme": TenantLimits()})
    assert budgets.take_actions() == [ReturnBudget(DAY, 7, 70)]
    assert reserve(budgets, 2, 10**9) == "ok"
    budgets.settle(1, spend(20), 0.0)
    assert [(s.spent, s.reserved) for s in budgets.spends()] == [(20, 0)]
    assert budgets.spends() == ()


def test_a_budget_that_a_reload_raises_may_be_asked_for_again() -> None:
    budgets = leased(100, last=True)
    reserve(budgets, 1, 100)
    assert isinstance(reserve(budgets, 2, 101), BudgetRefusal)
    budgets.reconfigure(limits((500, "tokens", "day")))
    assert budgets.take_ready() == ("acme",)
    assert reserve(budgets, 2, 101) == "wait"
    assert budgets.take_actions() == [AskBudget(DAY, 7, 101)]


@pytest.mark.parametrize("amount", [1, 10**15])
def test_amounts_are_whole_numbers_of_any_size(amount: int) -> None:
    budgets = leased(amount, budget=10**9)
    assert reserve(budgets, 1, min(amount, 10**9)) == "ok"
