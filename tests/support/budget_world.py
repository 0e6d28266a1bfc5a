"""Workers with leases and a treasury, as supervisor and channels join them, in steps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from mileage.control.accounts import AccountSpend
from mileage.control.budget_pool import PartGrant
from mileage.control.budgets import BudgetRefusal, Budgets
from mileage.control.spend import Estimate, Spend
from mileage.control.treasury import Treasury
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.events import BudgetGranted, BudgetRecalled
from mileage.core.request import Request
from mileage.policy.tenants import TenantLimits

__all__ = ["BudgetWorld", "Flight", "WorldWorker", "spend"]


def spend(tokens: int) -> Spend:
    """So many tokens, and as many GPU-ns and nano-USD."""
    return Spend(tokens, tokens, tokens)


@dataclass
class Flight:
    """A request in flight: what it will cost, and the windows that it was reserved in."""

    tenant: str
    cost: int
    windows: dict[str, int]


@dataclass
class WorldWorker:
    """One worker: its budgets, its channel in both directions, and its requests."""

    budgets: Budgets
    to_treasury: deque[tuple[tuple[AccountSpend, ...], tuple[AskBudget | ReturnBudget, ...]]] = (
        field(default_factory=deque)
    )
    from_treasury: deque[BudgetGranted | BudgetRecalled] = field(default_factory=deque)
    windows: dict[str, int] = field(default_factory=dict)
    held: dict[int, tuple[Request, Estimate, int]] = field(default_factory=dict)
    flights: dict[int, Flight] = field(default_factory=dict)


class BudgetWorld:
    """Every message is delivered by a step of its own, so that any interleaving can be had.

    `charged` is the truth: by account and window, what requests that have ended did cost.
    """

    def __init__(
        self, tenants: dict[str, TenantLimits], *, utc_s: float = 0.0, shared: bool = False
    ) -> None:
        self.tenants = tenants
        self.utc_s = utc_s
        self.mono_s = 1000.0
        self.treasury = Treasury(tenants, now_utc_s=utc_s, shared=shared)
        self.workers: dict[int, WorldWorker] = {}
        self.charged: dict[tuple[str, int], int] = {}
        self.dead: dict[int, dict[tuple[str, int], int]] = {}
        self.by_worker: dict[int, dict[tuple[str, int], int]] = {}
        self.outcomes: dict[int, str | BudgetRefusal] = {}
        self._next_worker = 0

    def found(self, spent: int = 0) -> None:
        """The ledger tells what was spent of every account before."""
        spends = []
        for due in self.treasury.unfounded(self.utc_s):
            key = due.account, due.window.number
            self.charged.setdefault(key, spent)
            spends.append(AccountSpend(account=key[0], window=key[1], spent=self.charged[key]))
        self._deliver(self.treasury.found(spends, self.utc_s))

    def start_worker(self) -> int:
        """A worker joins; returns its number."""
        self._next_worker += 1
        self.workers[self._next_worker] = WorldWorker(Budgets(self.tenants))
        self.by_worker[self._next_worker] = {}
        self.treasury.joined(self._next_worker)
        return self._next_worker

    def arrive(
        self, worker: int, request: Request, cost: int, most: int, likely: int | None = None
    ) -> int:
        """A request that will cost `cost`; returns its id, under which `outcomes` tells more."""
        estimate = Estimate(spend(most), spend(most if likely is None else likely))
        self._try(self.workers[worker], request, estimate, cost)
        self._flush(worker)
        return request.id

    def settle(self, worker: int, request_id: int) -> None:
        """The request ends and is charged."""
        one = self.workers[worker]
        flight = one.flights.pop(request_id)
        for account, window in flight.windows.items():
            self._charge(account, window, flight.cost, worker)
        one.budgets.settle(request_id, spend(flight.cost), self.mono_s)
        self._retry(worker)

    def step_up(self, worker: int) -> None:
        """The treasury hears one message of the worker's."""
        spends, actions = self.workers[worker].to_treasury.popleft()
        self._deliver(self.treasury.heard(worker, spends, actions, self.utc_s))

    def step_down(self, worker: int) -> None:
        """The worker hears one message of the treasury's."""
        one = self.workers[worker]
        event = one.from_treasury.popleft()
        if isinstance(event, BudgetGranted):
            one.windows[event.account] = event.window
            one.budgets.granted(event, self.mono_s)
        else:
            one.budgets.recalled(event)
        self._retry(worker)

    def kill(self, worker: int) -> None:
        """The worker dies; messages on their way from it are still heard, as on a socket."""
        one = self.workers[worker]
        while one.to_treasury:
            self.step_up(worker)
        for flight in one.flights.values():  # the engines did the work all the same
            for account, window in flight.windows.items():
                self._charge(account, window, flight.cost, worker)
        del self.workers[worker]
        self.dead[worker] = self.by_worker.pop(worker)
        self._deliver(self.treasury.left(worker, settled=False, now_utc_s=self.utc_s))

    def stop(self, worker: int) -> None:
        """The worker, which has nothing in flight, tells all and ends."""
        one = self.workers[worker]
        one.to_treasury.append((one.budgets.spends(), ()))
        while one.to_treasury:
            self.step_up(worker)
        del self.workers[worker]
        self._deliver(self.treasury.left(worker, settled=True, now_utc_s=self.utc_s))

    def reconcile(self, worker: int, *, known: bool = True) -> None:
        """The ledger tells what a worker that died did spend, or cannot."""
        spends = [
            AccountSpend(account=account, window=window, spent=amount)
            for (account, window), amount in self.dead.pop(worker).items()
        ]
        self._deliver(self.treasury.reconcile(worker, spends if known else None, self.utc_s))

    def configure(self, tenants: dict[str, TenantLimits]) -> None:
        """Other budgets: the treasury hears of them first, as in the gateway."""
        self.tenants = tenants
        self._deliver(self.treasury.configure(tenants, self.utc_s))
        for worker, one in self.workers.items():
            one.budgets.reconfigure(tenants)
            self._retry(worker)

    def quiesce(self) -> None:
        """Deliver all messages until there are none."""
        for _ in range(10_000):
            busy = False
            for worker, one in self.workers.items():
                while one.to_treasury:
                    self.step_up(worker)
                    busy = True
                while one.from_treasury:
                    self.step_down(worker)
                    busy = True
            if not busy:
                return
        raise AssertionError("messages go on for ever")

    def pooled(self, grants: list[PartGrant]) -> None:
        """The pool answers to what the treasury has reported."""
        self._deliver(self.treasury.pooled(grants, self.utc_s))

    def _charge(self, account: str, window: int, cost: int, worker: int) -> None:
        key = account, window
        for total in (self.charged, self.by_worker[worker]):
            total[key] = total.get(key, 0) + cost

    def _try(self, one: WorldWorker, request: Request, estimate: Estimate, cost: int) -> None:
        said = one.budgets.reserve(request, estimate, self.mono_s)
        self.outcomes[request.id] = said
        if said == "wait":
            one.held[request.id] = (request, estimate, cost)
            return
        one.held.pop(request.id, None)
        if said == "ok":
            prefix = f"{request.tenant}/"
            accounts = {a: w for a, w in one.windows.items() if a.startswith(prefix)}
            one.flights[request.id] = Flight(request.tenant, cost, accounts)

    def _retry(self, worker: int) -> None:
        one = self.workers[worker]
        ready = one.budgets.take_ready()
        for request, estimate, cost in list(one.held.values()):
            if request.tenant in ready:
                self._try(one, request, estimate, cost)
        self._flush(worker)

    def _flush(self, worker: int) -> None:
        one = self.workers[worker]
        actions = tuple(one.budgets.take_actions())
        if actions:
            one.to_treasury.append((one.budgets.spends(), actions))

    def _deliver(self, said: list[tuple[int, BudgetGranted | BudgetRecalled]]) -> None:
        for worker, event in said:
            if worker in self.workers:
                self.workers[worker].from_treasury.append(event)
