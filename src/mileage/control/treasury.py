"""Treasury: the truth about all budgets; lends parts of them to workers, and never more than is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from mileage.control.accounts import AccountSpend, Window, account_name
from mileage.control.budget_pool import PartGrant, PartReport
from mileage.control.lending import BudgetState, Delivery, Lease, Lending
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.bounds import require_range
from mileage.core.events import BudgetGranted
from mileage.policy.tenants import TenantLimits

__all__ = ["OpenAccount", "Treasury"]

_REFUSED_RETRY_S = 5.0
"""Where the ledger cannot be read: it may be readable again then."""


class OpenAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account in its present window. What was spent of it by requests that arrived in the window
    and before `opened_utc_s` only the ledger knows."""

    account: str
    window: Window
    opened_utc_s: float


class Treasury:
    """Lends the budgets of all tenants to workers; what it says is to be delivered in order.

    A worker is any number that no other one has had. It is lent a chunk (everything that is left,
    where it is alone) and asks again when that is used up. Where nothing is left to lend, the
    others are asked to give back what they do not need; who asks waits for that, and is told that
    there is no more only when nothing is outstanding anywhere. Those who ask for
    the same budget are served in order, so that what comes back in pieces is not handed out in
    pieces too small for anybody.

    What a worker that died had not spent, as far as it told, counts as spent until `reconcile`
    tells better. Nothing is lent of an account until `found` has told what was spent in its window
    before, or `ledger_unreadable` what to do without; a window that begins later is known.
    The time comes in as UTC seconds and may jump: a window that the clock comes back to is as spent
    as it was left.
    """

    def __init__(
        self, tenants: Mapping[str, TenantLimits], *, now_utc_s: float, shared: bool = False
    ) -> None:
        """`shared`: with the treasuries of other gateways, by a pool; see `reports`."""
        self._shared = shared
        self._accounts: dict[str, Lending] = {}
        self._workers: set[int] = set()
        self._closed = False
        self.configure(tenants, now_utc_s)

    def configure(self, tenants: Mapping[str, TenantLimits], now_utc_s: float) -> list[Delivery]:
        """Other budgets from now on; those that go on keep what was spent and lent.

        To be told before the workers are. Accounts that are new are unfounded.
        """
        known, self._accounts = self._accounts, {}
        said: list[Delivery] = []
        for tenant, limits in tenants.items():
            for budget in limits.budgets:
                name = account_name(tenant, budget)
                account = known.get(name)
                if account is None:
                    account = Lending(tenant, budget, now_utc_s, shared=self._shared)
                else:
                    account.configure(budget)
                    account.roll(now_utc_s)
                    said += account.recall_excess()
                self._accounts[name] = account
        return said + self._serve(self._accounts.values(), now_utc_s)

    def accounts(self, now_utc_s: float) -> list[OpenAccount]:
        """All accounts in their present windows."""
        self._roll(now_utc_s)
        return [_open(account) for account in self._accounts.values()]

    def unfounded(self, now_utc_s: float) -> list[OpenAccount]:
        """The accounts that `found` is to be told of, in their present windows."""
        self._roll(now_utc_s)
        return [_open(a) for a in self._accounts.values() if a.founding != "done"]

    def found(self, spends: Iterable[AccountSpend], now_utc_s: float) -> list[Delivery]:
        """What was spent before by accounts that are `unfounded`, in the windows given there."""
        self._closed = False
        self._roll(now_utc_s)
        for spend in spends:
            account = self._accounts.get(spend.account)
            if account is None or account.founding == "done":
                continue
            if spend.window == account.window.number:
                account.found(spend.spent)
        return self._serve(self._accounts.values(), now_utc_s)

    def ledger_unreadable(
        self, then: Literal["open", "closed"], lease_ratio: float, now_utc_s: float
    ) -> list[Delivery]:
        """The ledger cannot tell what was spent before: lend `lease_ratio` of each such budget in
        this window (open), or nothing (closed), until `found` is told."""
        require_range("lease_ratio", lease_ratio, 0.0, 1.0)
        self._roll(now_utc_s)
        self._closed = then == "closed"
        if not self._closed:
            for account in self._accounts.values():
                if account.founding == "due":
                    account.lend_blind(lease_ratio)
        return self._serve(self._accounts.values(), now_utc_s)

    def joined(self, worker: int) -> None:
        """A worker has started."""
        self._workers.add(worker)

    def heard(
        self,
        worker: int,
        spends: Sequence[AccountSpend],
        actions: Sequence[AskBudget | ReturnBudget],
        now_utc_s: float,
    ) -> list[Delivery]:
        """What a worker has spent so far (see `Budgets.spends`), and what it asks and returns."""
        self._workers.add(worker)
        self._roll(now_utc_s)
        said: list[Delivery] = []
        for spend in spends:
            self._spent(worker, spend)
        for action in actions:
            account = self._accounts.get(action.account)
            if isinstance(action, ReturnBudget):
                if account is not None and action.window == account.window.number:
                    account.returned(worker, action.amount)
            elif account is None:
                # It was taken out of the configuration, of which the worker is about to hear.
                nothing = BudgetGranted(
                    action.account, action.window, 0, _REFUSED_RETRY_S, last=True
                )
                said.append((worker, nothing))
            else:
                account.asks[worker] = max(1, action.amount)
        return said + self._serve(self._accounts.values(), now_utc_s)

    def left(self, worker: int, *, settled: bool, now_utc_s: float) -> list[Delivery]:
        """A worker has ended. `settled`: it had nothing in flight, and has told all it spent;
        else `reconcile` is to be called when the ledger knows its last requests."""
        self._workers.discard(worker)
        self._roll(now_utc_s)
        for account in self._accounts.values():
            account.left(worker, settled=settled)
        return self._serve(self._accounts.values(), now_utc_s)

    def reconcile(
        self, worker: int, spends: Iterable[AccountSpend] | None, now_utc_s: float
    ) -> list[Delivery]:
        """What a worker that died spent, by the ledger; accounts that are not named: nothing.

        None: the ledger cannot tell, and all that it held counts as spent in this window.
        """
        self._roll(now_utc_s)
        spent = None if spends is None else {(s.account, s.window): s.spent for s in spends}
        for name, account in self._accounts.items():
            known = None if spent is None else spent.get((name, account.window.number), 0)
            account.reconcile(worker, known)
        return self._serve(self._accounts.values(), now_utc_s)

    def reports(self, now_utc_s: float, *, leaving: bool = False) -> list[PartReport]:
        """What the pool is to be told of all accounts, for an answer that `pooled` takes.
        `leaving`: all that is not spent is given back."""
        self._roll(now_utc_s)
        found = [r for r in (a.report() for a in self._accounts.values()) if r is not None]
        if leaving:
            return [msgspec.structs.replace(report, part=0, wanted=0) for report in found]
        return found

    @property
    def waits_for_pool(self) -> bool:
        """Somebody asks for more than this gateway has."""
        reports = (account.report() for account in self._accounts.values() if account.asks)
        return any(report is not None and report.wanted for report in reports)

    def pooled(self, grants: Iterable[PartGrant], now_utc_s: float) -> list[Delivery]:
        """The pool's answer to `reports`."""
        self._roll(now_utc_s)
        said: list[Delivery] = []
        for grant in grants:
            account = self._accounts.get(grant.account)
            if account is not None and grant.window == account.window.number:
                said += account.pooled(grant, now_utc_s)
        return said + self._serve(self._accounts.values(), now_utc_s)

    def pool_unreachable(
        self, then: Literal["open", "closed"], lease_ratio: float, now_utc_s: float
    ) -> list[Delivery]:
        """The pool cannot be asked: lend what was granted, and where that is used up `lease_ratio`
        of the budget (open) or nothing more (closed), until it answers."""
        self._roll(now_utc_s)
        for account in self._accounts.values():
            if account.founding == "done":
                account.pool_unreachable(lease_ratio if then == "open" else 0.0, now_utc_s)
        return self._serve(self._accounts.values(), now_utc_s)

    def states(self, now_utc_s: float) -> list[BudgetState]:
        """How all budgets stand, in the order of the configuration."""
        self._roll(now_utc_s)
        return [account.state() for account in self._accounts.values()]

    def _spent(self, worker: int, spend: AccountSpend) -> None:
        account = self._accounts.get(spend.account)
        if account is None or spend.window != account.window.number:
            return
        lease = account.leases.get(worker)
        if lease is None:
            lease = account.leases[worker] = Lease()
        lease.spent = max(lease.spent, spend.spent)
        lease.reserved, lease.excess = spend.reserved, spend.excess

    def _roll(self, now_utc_s: float) -> None:
        for account in self._accounts.values():
            account.roll(now_utc_s)

    def _serve(self, accounts: Iterable[Lending], now_utc_s: float) -> list[Delivery]:
        said: list[Delivery] = []
        for account in accounts:
            if self._closed and account.founding == "due":
                nothing = BudgetGranted(
                    account.name, account.window.number, 0, _REFUSED_RETRY_S, last=True
                )
                said += [(worker, nothing) for worker in account.asks]
                account.asks.clear()
            elif account.asks:
                said += account.serve(len(self._workers), now_utc_s)
        return said


def _open(account: Lending) -> OpenAccount:
    return OpenAccount(
        account=account.name, window=account.window, opened_utc_s=account.opened_utc_s
    )
