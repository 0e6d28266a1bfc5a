"""The treasury: who is lent how much of a budget, and when there is no more."""

from __future__ import annotations

import pytest

from mileage.control.accounts import AccountSpend
from mileage.control.lending import Delivery
from mileage.control.treasury import Treasury
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.events import BudgetGranted, BudgetRecalled
from mileage.policy.tenants import BudgetConfig, TenantLimits

DAY = "acme/tokens/day"
NOON = 12 * 3600.0


def tenants(amount: float = 1000) -> dict[str, TenantLimits]:
    budget = BudgetConfig(amount=amount, unit="tokens", per="day")
    return {"acme": TenantLimits(budgets=(budget,))}


def treasury(workers: int = 1, *, spent: int | None = 0, amount: float = 1000) -> Treasury:
    made = Treasury(tenants(amount), now_utc_s=NOON)
    for worker in range(1, workers + 1):
        made.joined(worker)
    if spent is not None:
        made.found([spend(spent)], NOON)
    return made


def spend(amount: int, *, reserved: int = 0, window: int = 0) -> AccountSpend:
    return AccountSpend(account=DAY, window=window, spent=amount, reserved=reserved)


def ask(
    made: Treasury, worker: int, amount: int, *spends: AccountSpend, now_utc_s: float = NOON
) -> list[Delivery]:
    return made.heard(worker, spends, [AskBudget(DAY, 0, amount)], now_utc_s)


def give_back(made: Treasury, worker: int, amount: int, *spends: AccountSpend) -> list[Delivery]:
    return made.heard(worker, spends, [ReturnBudget(DAY, 0, amount)], NOON)


def granted(worker: int, amount: int, *, last: bool = False, window: int = 0) -> Delivery:
    return worker, BudgetGranted(DAY, window, amount, NOON, last)


def recalled(worker: int) -> Delivery:
    return worker, BudgetRecalled(DAY, 0)


def test_a_worker_alone_is_lent_all_that_is_left() -> None:
    assert ask(treasury(spent=300), 1, 5) == [granted(1, 700)]


def test_one_of_several_is_lent_a_part_and_never_less_than_it_asked_for() -> None:
    made = treasury(2)
    assert ask(made, 1, 5) == [granted(1, 250)]
    assert ask(made, 2, 5) == [granted(2, 188)]
    assert ask(made, 1, 400) == [granted(1, 400)]


def test_who_asks_waits_for_what_others_give_back() -> None:
    made = treasury(2)
    ask(made, 1, 1000)
    assert ask(made, 2, 50) == [recalled(1)]
    assert give_back(made, 1, 20) == []
    assert give_back(made, 1, 40) == [granted(2, 50)]


def test_it_is_told_that_there_is_no_more_when_nothing_is_outstanding_anywhere() -> None:
    made = treasury(2)
    ask(made, 1, 1000)
    ask(made, 2, 50)
    assert give_back(made, 1, 30, spend(900, reserved=70)) == []
    assert give_back(made, 1, 0, spend(970)) == [granted(2, 30, last=True)]


def test_nothing_at_all_is_left() -> None:
    assert ask(treasury(spent=1000), 1, 1) == [granted(1, 0, last=True)]
    assert ask(treasury(spent=1200), 1, 1) == [granted(1, 0, last=True)]


def test_those_who_ask_are_served_in_order() -> None:
    made = treasury(3)
    ask(made, 1, 1000)
    ask(made, 2, 500)
    assert ask(made, 3, 10) == []
    assert give_back(made, 1, 300) == []
    # What is left goes to the next one.
    assert give_back(made, 1, 600) == [granted(2, 500), granted(3, 67)]


def test_what_is_returned_while_asking_is_asked_for_as_well() -> None:
    made = treasury(2)
    ask(made, 1, 600)
    ask(made, 2, 400)
    ask(made, 1, 50)
    assert ask(made, 2, 100) == []
    # Of the 600 the worker had kept 500; for what it wants it needs those and 50 more.
    assert give_back(made, 1, 500) == []
    assert give_back(made, 2, 400)[0] == granted(1, 550)


def test_a_worker_that_ends_with_all_told_frees_what_it_did_not_spend() -> None:
    made = treasury(2)
    ask(made, 1, 1000)
    ask(made, 2, 10)
    made.heard(1, [spend(400)], [], NOON)
    assert made.left(1, settled=True, now_utc_s=NOON) == [granted(2, 600)]


def test_the_lease_of_a_worker_that_died_is_spent_until_the_ledger_tells() -> None:
    made = treasury(2)
    ask(made, 1, 1000)
    made.heard(1, [spend(400, reserved=100)], [], NOON)
    assert made.left(1, settled=False, now_utc_s=NOON) == []
    assert ask(made, 2, 10) == []
    assert made.states(NOON)[0].uncertain == 600
    assert made.reconcile(1, [spend(450)], NOON) == [granted(2, 550)]
    assert made.states(NOON)[0].spent == 450


@pytest.mark.parametrize(
    ("told", "left"),
    [
        pytest.param(None, 0, id="the ledger cannot tell: all of it is spent"),
        pytest.param([], 600, id="the ledger has nothing: what the worker told counts"),
        pytest.param([spend(300)], 600, id="the ledger has less than the worker told"),
    ],
)
def test_reconciling_believes_the_higher_figure(told: list[AccountSpend] | None, left: int) -> None:
    made = treasury(2)
    ask(made, 1, 1000)
    made.heard(1, [spend(400)], [], NOON)
    made.left(1, settled=False, now_utc_s=NOON)
    made.reconcile(1, told, NOON)
    assert ask(made, 2, 1000) == [granted(2, left, last=True)]


def test_a_new_window_has_all_of_the_budget_again() -> None:
    made = treasury(spent=1000)
    assert ask(made, 1, 5, now_utc_s=NOON + 86_400) == [granted(1, 1000, window=1)]


def test_spends_and_returns_of_an_old_window_change_nothing_in_the_new_one() -> None:
    made = treasury()
    ask(made, 1, 5)
    tomorrow = NOON + 86_400
    ask(made, 1, 5, now_utc_s=tomorrow)
    made.heard(1, [spend(700)], [ReturnBudget(DAY, 0, 300)], tomorrow)
    assert made.states(tomorrow)[0].spent == 0
    assert ask(made, 1, 5, now_utc_s=tomorrow) == [
        (1, BudgetGranted(DAY, 1, 0, NOON, True)),
    ]


def test_a_clock_that_falls_back_finds_the_window_as_spent_as_it_was_left() -> None:
    made = treasury()
    ask(made, 1, 5)
    ask(made, 1, 5, now_utc_s=NOON + 86_400)
    assert ask(made, 1, 5) == [granted(1, 0, last=True)]


def test_a_clock_that_falls_back_still_knows_what_the_ledger_is_to_be_asked() -> None:
    made = treasury(spent=None)
    assert made.unfounded(NOON + 86_400) == []
    (due,) = made.unfounded(NOON + 60)
    assert due.opened_utc_s == NOON


def test_nothing_is_lent_before_it_is_known_what_was_spent() -> None:
    made = treasury(spent=None)
    assert ask(made, 1, 5) == []
    (due,) = made.unfounded(NOON)
    assert (due.account, due.window.number, due.opened_utc_s) == (DAY, 0, NOON)
    assert made.found([spend(990)], NOON) == [granted(1, 10)]
    assert made.unfounded(NOON) == []


def test_what_was_spent_before_is_not_asked_for_in_a_window_that_begins_later() -> None:
    made = treasury(spent=None)
    assert made.unfounded(NOON + 86_400) == []
    assert ask(made, 1, 5, now_utc_s=NOON + 86_400) == [granted(1, 1000, window=1)]


def test_open_on_an_unreadable_ledger_lends_a_part_and_tells_the_possible_overshoot() -> None:
    made = treasury(spent=None)
    ask(made, 1, 5)
    assert made.ledger_unreadable("open", 0.1, NOON) == [granted(1, 100)]
    assert made.states(NOON)[0].possible_overshoot == 100
    assert ask(made, 1, 50, spend(60)) == [granted(1, 0, last=True)]
    # The ledger can be read again: what was lent in between counts too.
    made.found([spend(700)], NOON)
    state = made.states(NOON)[0]
    assert (state.spent, state.possible_overshoot) == (760, 0)
    assert ask(made, 1, 50) == [granted(1, 200)]


def test_closed_on_an_unreadable_ledger_lends_nothing_until_it_can_be_read() -> None:
    made = treasury(spent=None)
    assert made.ledger_unreadable("closed", 0.1, NOON) == []
    assert ask(made, 1, 5) == [(1, BudgetGranted(DAY, 0, 0, 5.0, True))]
    made.found([spend(0)], NOON)
    assert ask(made, 1, 5) == [granted(1, 1000)]


def test_a_budget_that_is_lowered_is_asked_back() -> None:
    made = treasury()
    ask(made, 1, 5)
    assert made.configure(tenants(400), NOON) == [recalled(1)]
    give_back(made, 1, 800, spend(150, reserved=50))
    assert ask(made, 1, 5) == [granted(1, 200)]


def test_a_budget_that_is_raised_serves_who_waits() -> None:
    made = treasury(2)
    ask(made, 1, 1000)
    ask(made, 2, 50)
    assert made.configure(tenants(2000), NOON) == [granted(2, 250)]


def test_a_budget_that_comes_with_a_reload_asks_the_ledger() -> None:
    made = Treasury({}, now_utc_s=NOON)
    assert ask(made, 1, 5) == [(1, BudgetGranted(DAY, 0, 0, 5.0, True))]
    made.configure(tenants(), NOON + 60)
    assert [(u.account, u.opened_utc_s) for u in made.unfounded(NOON + 60)] == [(DAY, NOON + 60)]


def test_states_tell_what_is_spent_reserved_and_above_its_estimate() -> None:
    made = treasury(spent=100)
    ask(made, 1, 5)
    told = AccountSpend(account=DAY, window=0, spent=40, reserved=7, excess=3)
    made.heard(1, [told], [], NOON)
    (state,) = made.states(NOON)
    assert (state.tenant, state.unit, state.per, state.amount) == ("acme", "tokens", "day", 1000)
    assert (state.spent, state.reserved, state.excess) == (140, 7, 3)
    assert state.window_ends_utc_s == 86_400
