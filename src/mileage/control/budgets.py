"""Budgets: what one worker may still spend of its tenants' budgets, reserved before it is spent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from mileage.control.accounts import (
    AccountSpend,
    account_name,
    amount_text,
    budget_amount,
    duration_text,
)
from mileage.control.spend import Estimate, Spend
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.events import BudgetGranted, BudgetRecalled
from mileage.core.request import Request
from mileage.policy.tenants import BudgetConfig, TenantLimits

__all__ = ["BudgetRefusal", "Budgets"]

_NO_WINDOW = -1


class BudgetRefusal(msgspec.Struct, frozen=True, gc=False):
    """A budget is used up; `retry_after_s` is when its next window begins, None where even a whole
    budget is not enough. `detail` is for people."""

    retry_after_s: float | None
    detail: str


class _Tally:
    """What was spent of an account in one window, by this worker."""

    __slots__ = ("excess", "reserved", "spent", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.spent = self.reserved = self.excess = 0


class _Account:
    """The worker's lease on one budget in the present window."""

    __slots__ = (
        "asked",
        "budget",
        "dry",
        "granted",
        "name",
        "renews_at_s",
        "tally",
        "tenant",
    )

    def __init__(self, tenant: str, budget: BudgetConfig) -> None:
        self.tenant, self.budget = tenant, budget
        self.name = account_name(tenant, budget)
        self.tally = _Tally(_NO_WINDOW)
        self.granted = 0
        self.renews_at_s = math.inf
        self.asked = False
        self.dry = False
        """The treasury has no more for this window, and neither has anybody else."""

    @property
    def free(self) -> int:
        return self.granted - self.tally.spent - self.tally.reserved


class _Reservation:
    __slots__ = ("account", "amount", "tally")

    def __init__(self, account: _Account, amount: int) -> None:
        self.account, self.tally, self.amount = account, account.tally, amount


class Budgets:
    """Holds this worker's leases, and reserves of all budgets of a tenant at once, or of none.

    The treasury (`mileage.control.treasury`) grants leases, so that what all workers together may
    spend is never above the budget. A request reserves the most that it may cost, is charged what
    it did cost, and what is over may be reserved again. So what is missing may be free a moment
    later: `reserve` says "wait" while requests of this worker hold it or the treasury was asked,
    and `take_ready` tells whose requests are worth trying again. The last of a budget, too little
    for the most that a request may cost, goes to requests that are likely to need no more, one at
    a time.

    A new window voids the leases; what was reserved in an old one is charged to that.
    """

    def __init__(self, tenants: Mapping[str, TenantLimits]) -> None:
        self._accounts: dict[str, _Account] = {}
        self._tenants: dict[str, tuple[_Account, ...]] = {}
        self._reservations: dict[int, tuple[_Reservation, ...]] = {}
        self._asks: dict[str, AskBudget] = {}
        self._returns: list[ReturnBudget] = []
        self._recalled: dict[str, _Account] = {}
        """Accounts that others wait for, while anything of them is reserved or free here."""
        self._ready: dict[str, None] = {}
        self._closing: list[tuple[str, _Tally]] = []
        """Windows that are over while requests of them are not."""
        self.reconfigure(tenants)

    def reconfigure(self, tenants: Mapping[str, TenantLimits]) -> None:
        """Other budgets from now on. Leases of accounts that go on stay; of the others what is
        free is given back, and requests on their way are charged to them at their end."""
        accounts: dict[str, _Account] = {}
        self._tenants = {}
        for tenant, limits in tenants.items():
            if not limits.budgets:
                continue
            for budget in limits.budgets:
                name = account_name(tenant, budget)
                account = self._accounts.pop(name, None) or _Account(tenant, budget)
                account.budget, account.dry = budget, False
                accounts[name] = account
            self._tenants[tenant] = tuple(
                accounts[account_name(tenant, budget)] for budget in limits.budgets
            )
        for account in self._accounts.values():
            self._ready[account.tenant] = None
            self._recalled.pop(account.name, None)
            self._void(account)
            self._close_window(account)
        self._accounts = accounts
        for tenant in self._tenants:
            self._ready[tenant] = None

    def has(self, tenant: str) -> bool:
        """Whether the tenant has a budget: without, there is nothing to reserve."""
        return tenant in self._tenants

    def reserve(
        self, request: Request, estimate: Estimate, now_s: float
    ) -> Literal["ok", "wait"] | BudgetRefusal:
        """Reserve what the request may cost, of every budget of its tenant.

        "wait": what is missing may come, see `take_ready`; nothing is reserved.
        """
        accounts = self._tenants.get(request.tenant)
        if accounts is None or request.id in self._reservations:
            return "ok"
        short = False
        for account in accounts:
            if now_s >= account.renews_at_s:
                self._void(account)
            short |= estimate.most.of(account.budget.unit) > account.free
        if not short:
            self._book(request.id, accounts, estimate.most)
            return "ok"
        waits = False
        for account in accounts:
            said = self._lacking(account, estimate, now_s)
            if isinstance(said, BudgetRefusal):
                return said
            waits |= said == "wait"
        if waits:
            return "wait"
        self._book(request.id, accounts, estimate.likely)
        return "ok"

    def _lacking(
        self, account: _Account, estimate: Estimate, now_s: float
    ) -> Literal["ok", "wait"] | BudgetRefusal:
        """What is to be done about one account: "ok" where the likely cost may be reserved."""
        unit = account.budget.unit
        most, likely, free = estimate.most.of(unit), estimate.likely.of(unit), account.free
        if likely > budget_amount(account.budget):
            return self._refusal(account, likely, None)
        if most <= free:
            return "ok"
        if not account.dry:
            if not account.asked:
                account.asked = True
                window = account.tally.window
                self._asks[account.name] = AskBudget(account.name, window, most - free)
            return "wait"
        reserved = account.tally.reserved
        if likely > free + reserved:
            return self._refusal(account, likely, max(0.0, account.renews_at_s - now_s))
        # Alone, so that no more than one request can turn out above what was likely.
        return "wait" if reserved else "ok"

    def settle(self, request_id: int, actual: Spend, now_s: float) -> None:
        """The request is over: charge what it did cost. Unknown requests are ignored."""
        for reservation in self._reservations.pop(request_id, ()):
            account, tally = reservation.account, reservation.tally
            cost = actual.of(account.budget.unit)
            tally.reserved -= reservation.amount
            tally.spent += cost
            tally.excess += max(0, cost - reservation.amount)
            self._freed(account, tally)

    def release(self, request_id: int) -> None:
        """The request was never sent to an engine: nothing is charged."""
        for reservation in self._reservations.pop(request_id, ()):
            reservation.tally.reserved -= reservation.amount
            self._freed(reservation.account, reservation.tally)

    def granted(self, event: BudgetGranted, now_s: float) -> None:
        """The treasury has answered, or a new window has begun."""
        account = self._accounts.get(event.account)
        if account is None:
            if event.amount:
                self._returns.append(ReturnBudget(event.account, event.window, event.amount))
            return
        if event.window != account.tally.window:
            self._close_window(account)
            account.tally = _Tally(event.window)
            account.granted = 0
        account.granted += event.amount
        account.renews_at_s = now_s + event.renews_s
        account.asked, account.dry = False, event.last
        if event.amount:
            self._recalled.pop(account.name, None)
        self._ready[account.tenant] = None

    def recalled(self, event: BudgetRecalled) -> None:
        """Give back what is free, now and whenever more of it becomes free."""
        account = self._accounts.get(event.account)
        if account is not None and account.tally.window == event.window:
            self._recalled[account.name] = account

    @property
    def ready(self) -> bool:
        """Whether requests that were told to wait may be tried again."""
        return bool(self._ready)

    def take_ready(self) -> tuple[str, ...]:
        """The tenants whose waiting requests are to be tried again now, in order."""
        ready = tuple(self._ready)
        self._ready.clear()
        return ready

    def take_actions(self) -> list[AskBudget | ReturnBudget]:
        """What is to be told to the treasury; to be called after waiting requests were tried."""
        for account in list(self._recalled.values()):
            self._give_back(account)
        # Asks first: what is returned after it, the treasury adds to an ask.
        actions: list[AskBudget | ReturnBudget] = [*self._asks.values(), *self._returns]
        self._returns.clear()
        self._asks.clear()
        return actions

    def spends(self) -> tuple[AccountSpend, ...]:
        """What was spent so far by account and window, for the treasury and for people.

        Of a window that is over, until its last request has ended; that one is told once.
        """
        closing = self._closing
        self._closing = [(name, tally) for name, tally in closing if tally.reserved]
        return tuple(
            AccountSpend(
                account=name,
                window=tally.window,
                spent=tally.spent,
                reserved=tally.reserved,
                excess=tally.excess,
            )
            for name, tally in (
                *((a.name, a.tally) for a in self._accounts.values()),
                *closing,
            )
            if tally.window != _NO_WINDOW
        )

    def _book(self, request_id: int, accounts: tuple[_Account, ...], spend: Spend) -> None:
        reservations = tuple(
            _Reservation(account, spend.of(account.budget.unit)) for account in accounts
        )
        for reservation in reservations:
            reservation.tally.reserved += reservation.amount
        self._reservations[request_id] = reservations

    def _freed(self, account: _Account, tally: _Tally) -> None:
        if tally is account.tally:
            self._ready[account.tenant] = None

    def _give_back(self, account: _Account) -> None:
        """Return what is free to the treasury. 0 tells it that all is settled and nothing left."""
        free = max(0, account.free)
        settled = not account.tally.reserved
        if free or settled:
            self._returns.append(ReturnBudget(account.name, account.tally.window, free))
            account.granted -= free
        if free:
            account.dry = False  # what is given away may come back
        if settled:
            del self._recalled[account.name]

    def _void(self, account: _Account) -> None:
        """The lease is over: nothing of it may be reserved any more.

        What is free is given back all the same: should only our clock have leapt, the window still
        lasts, and the treasury takes it.
        """
        free = account.free
        if free > 0:
            self._returns.append(ReturnBudget(account.name, account.tally.window, free))
            account.granted -= free
        account.dry = False

    def _close_window(self, account: _Account) -> None:
        if account.tally.window != _NO_WINDOW:
            self._closing.append((account.name, account.tally))

    def _refusal(
        self, account: _Account, needed: int, retry_after_s: float | None
    ) -> BudgetRefusal:
        budget = account.budget
        unit, per = budget.unit, budget.per
        amount = amount_text(unit, budget_amount(budget))
        needs = f"this request may need {amount_text(unit, needed)}"
        if retry_after_s is None:
            detail = (
                f"{needs}, more than the whole budget of tenant '{account.tenant}', {amount} "
                f"per {per}; ask for fewer output tokens"
            )
        else:
            detail = (
                f"tenant '{account.tenant}' has used up its budget of {amount} per {per}: {needs}, "
                f"{amount_text(unit, max(0, account.free))} are left; the next {per} (UTC) begins "
                f"in {duration_text(retry_after_s)}"
            )
        return BudgetRefusal(retry_after_s, detail)
