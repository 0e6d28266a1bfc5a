"""A budget's parts: what a pool answers to gateways, and what their treasuries make of it."""

from __future__ import annotations

from typing import Literal

import pytest

from mileage.control.accounts import AccountSpend
from mileage.control.budget_pool import PartGrant, PartReport, PoolPart, exchange
from mileage.control.lending import Delivery
from mileage.control.treasury import Treasury
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.events import BudgetGranted
from mileage.policy.tenants import BudgetConfig, TenantLimits


def tell(
    parts: dict[str, PoolPart],
    name: str,
    wanted: int = 0,
    *,
    spent: int = 0,
    kept: int = 0,
    part: int | None = None,
) -> PartGrant:
    known = parts.setdefault(name, PoolPart())
    report = PartReport(
        account="a/tokens/day",
        window=1,
        ends_utc_s=86_400,
        amount=100,
        part=known.granted if part is None else part,
        spent=spent,
        kept=max(kept, spent),
        wanted=wanted,
    )
    return exchange(parts, name, report)


def test_one_that_is_alone_gets_all() -> None:
    assert tell({}, "a", 10).granted == 100


def test_another_gets_what_the_first_does_not_need() -> None:
    parts: dict[str, PoolPart] = {}
    tell(parts, "a", 10)
    waits = tell(parts, "b", 20)
    assert (waits.granted, waits.last) == (0, False)
    recalled = tell(parts, "a", spent=30, kept=40)
    assert (recalled.granted, recalled.recalled) == (100, True)
    assert tell(parts, "a", spent=30, kept=40, part=40).granted == 40
    assert tell(parts, "b", 20).granted == 20
    assert tell(parts, "b", 20).granted == 40, "the rest, in pieces of a quarter but no smaller"


def test_there_is_no_more_only_when_nobody_holds_any() -> None:
    parts = {"a": PoolPart(granted=95, spent=90)}
    assert not tell(parts, "b", 20).last
    tell(parts, "a", spent=95)
    refused = tell(parts, "b", 20)
    assert (refused.granted, refused.last, refused.uncertain) == (5, True, 0)


def test_what_a_dead_one_holds_counts_as_spent_until_it_is_back() -> None:
    parts = {"a": PoolPart(granted=95, spent=10, live=False)}
    refused = tell(parts, "b", 20)
    assert (refused.granted, refused.last, refused.uncertain) == (5, True, 85)
    report = PartReport(
        account="a/tokens/day",
        window=1,
        ends_utc_s=86_400,
        amount=100,
        part=0,
        spent=30,
        kept=30,
        wanted=0,
    )
    assert exchange(parts, "a", report).granted == 30
    assert tell(parts, "b", 20).granted == 25


def test_those_who_wait_are_served_in_order() -> None:
    parts = {"a": PoolPart(granted=60), "b": PoolPart(granted=40)}
    assert tell(parts, "b", 60).granted == 40
    second = tell(parts, "a", 50)
    assert (second.granted, second.recalled) == (60, True), "the first one's before its own"
    assert not tell(parts, "a", 50, part=0).last
    assert tell(parts, "b", 60).granted == 100


def test_an_answer_that_was_lost_is_taken_back() -> None:
    parts: dict[str, PoolPart] = {}
    tell(parts, "a", 10)
    report = PartReport(
        account="a/tokens/day",
        window=1,
        ends_utc_s=9,
        amount=100,
        part=0,
        spent=0,
        kept=0,
        wanted=0,
    )
    assert exchange(parts, "a", report).granted == 0


@pytest.mark.parametrize("kept", [0, 70])
def test_a_budget_that_was_lowered_is_recalled_as_far_as_it_can_be(kept: int) -> None:
    parts = {"a": PoolPart(granted=80), "b": PoolPart(granted=60)}
    answer = tell(parts, "a", kept=kept)
    assert (answer.granted, answer.recalled) == (80, True)
    assert tell(parts, "a", kept=kept, part=kept).granted == kept


class Shared:
    """A treasury of one of several gateways, with one worker."""

    def __init__(self) -> None:
        budget = BudgetConfig(amount=100, unit="tokens", per="day")
        self.treasury = Treasury({"a": TenantLimits(budgets=(budget,))}, now_utc_s=0.0, shared=True)
        self.treasury.joined(1)
        self.treasury.found([AccountSpend(account="a/tokens/day", window=0, spent=0)], 0.0)

    def ask(self, amount: int) -> list[BudgetGranted]:
        """What the worker is told at once."""
        return _granted(self.treasury.heard(1, (), (AskBudget("a/tokens/day", 0, amount),), 0.0))

    def told(self, granted: int, **fields: object) -> list[BudgetGranted]:
        """The pool's answer, and what the worker is told."""
        grant = PartGrant(account="a/tokens/day", window=0, granted=granted, **fields)  # type: ignore[arg-type]
        return _granted(self.treasury.pooled([grant], 0.0))


def _granted(said: list[Delivery]) -> list[BudgetGranted]:
    return [event for _, event in said if isinstance(event, BudgetGranted)]


def test_a_gateway_lends_what_the_pool_granted_and_reports_what_it_lacks() -> None:
    shared = Shared()
    assert shared.ask(30) == []
    assert shared.treasury.waits_for_pool
    (report,) = shared.treasury.reports(0.0)
    assert (report.part, report.kept, report.wanted) == (0, 0, 30)
    (granted,) = shared.told(40)
    assert (granted.amount, granted.last) == (40, False)
    (report,) = shared.treasury.reports(0.0)
    assert (report.part, report.kept, report.wanted) == (40, 40, 0)
    assert not shared.treasury.waits_for_pool


def test_what_is_recalled_is_given_back_once_workers_returned_it() -> None:
    shared = Shared()
    shared.ask(30)
    shared.told(40)
    shared.told(40, recalled=True)
    back = ReturnBudget("a/tokens/day", 0, 25)
    shared.treasury.heard(1, (), (back,), 0.0)
    assert shared.told(40, recalled=True) == []
    (report,) = shared.treasury.reports(0.0)
    assert (report.part, report.kept) == (15, 15)


def test_where_a_dead_gateway_holds_some_there_may_be_more_soon() -> None:
    shared = Shared()
    shared.ask(30)
    (granted,) = shared.told(5, last=True, uncertain=10)
    assert (granted.amount, granted.last, granted.renews_s) == (5, True, 30.0)


@pytest.mark.parametrize(
    ("then", "blind"),
    [
        pytest.param("open", 10, id="open: a part of the budget, once"),
        pytest.param("closed", 0, id="closed: nothing"),
    ],
)
def test_while_the_pool_cannot_be_asked(then: Literal["open", "closed"], blind: int) -> None:
    shared = Shared()
    shared.ask(30)
    (granted,) = _granted(shared.treasury.pool_unreachable(then, 0.1, 0.0))
    assert (granted.amount, granted.last, granted.renews_s) == (blind, True, 5.0)
    assert shared.treasury.states(0.0)[0].possible_overshoot == blind
    shared.ask(30)
    (granted,) = _granted(shared.treasury.pool_unreachable(then, 0.1, 0.0))
    assert granted.amount == 0
    (report,) = shared.treasury.reports(0.0)
    assert report.kept == blind, "the pool hears of it"
    shared.told(20)
    assert shared.treasury.states(0.0)[0].possible_overshoot == 0


def test_a_gateway_that_leaves_keeps_what_was_spent() -> None:
    shared = Shared()
    shared.ask(30)
    shared.told(40)
    spend = AccountSpend(account="a/tokens/day", window=0, spent=12)
    shared.treasury.heard(1, (spend,), (), 0.0)
    shared.treasury.left(1, settled=True, now_utc_s=0.0)
    (report,) = shared.treasury.reports(0.0, leaving=True)
    assert (report.part, report.spent, report.kept) == (0, 12, 12)
