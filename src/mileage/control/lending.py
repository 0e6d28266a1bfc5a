"""Lending: one budget in its present window, and who holds how much of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from mileage.control.accounts import Window, account_name, budget_amount, window_at
from mileage.control.budget_pool import PartGrant, PartReport
from mileage.core.events import BudgetGranted, BudgetRecalled
from mileage.policy.tenants import BudgetConfig

__all__ = ["BudgetState", "Delivery", "Founding", "Lease", "Lending"]

Delivery: TypeAlias = tuple[int, BudgetGranted | BudgetRecalled]
"""To which worker, and what it is to be told."""

Founding: TypeAlias = Literal["due", "blind", "done"]
"""due: it is not known what was spent before, and nobody is lent anything; blind: the ledger cannot
tell, and a part of the budget is lent all the same; done: known."""

_CHUNKS_PER_WORKER = 2
"""Guided self-scheduling: with n workers each gets 1/(2 n) of what is left at a time."""
_PAST_WINDOWS = 48
_UNCERTAIN_RETRY_S = 30.0
_UNREACHABLE_RETRY_S = 5.0


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """One budget at one moment, for people. `spent` is of requests that have ended, by the workers'
    last words; `excess` is what requests cost above their estimates, part of it."""

    account: str
    tenant: str
    unit: str
    per: str
    amount: int
    spent: int
    reserved: int
    excess: int
    window_ends_utc_s: int
    possible_overshoot: int
    """Lent although the ledger could not tell what was spent before, or other gateways hold."""
    uncertain: int
    """Held back for workers that died, until the ledger tells what they spent."""


class Lease(msgspec.Struct, gc=False):
    """What one worker was granted of a budget in this window, and what it has spent."""

    granted: int = 0
    spent: int = 0
    reserved: int = 0
    excess: int = 0

    @property
    def held(self) -> int:
        """What nobody else may have."""
        return max(self.granted, self.spent)

    @property
    def outstanding(self) -> int:
        """What may still be spent of it, or come back."""
        return max(0, self.granted - self.spent)


class _Past(msgspec.Struct, frozen=True, gc=False):
    """What is known of a window that was left; all that was lent in it counts as spent."""

    spent: int
    founding: Founding
    withheld: int
    opened_utc_s: float


class Lending:
    """One budget in its present window."""

    def __init__(
        self, tenant: str, budget: BudgetConfig, now_utc_s: float, *, shared: bool = False
    ) -> None:
        """`shared`: with other gateways; then no more is lent than the pool has granted."""
        self.tenant = tenant
        self.part: int | None = 0 if shared else None
        """What the pool has granted to this gateway in this window; None: all of it is ours."""
        self.pool_part: int | None = None
        """What the pool has on record for this gateway; None: it may be anything."""
        self.blind_part = 0
        """What is lent beside that while the pool cannot be asked."""
        self.exhausted = False
        """The pool has said that there is no more."""
        self.renews_at_utc_s: float | None = None
        """Before the window's end there may be more: a gateway that died may come back."""
        self.name = account_name(tenant, budget)
        self.opened_utc_s = now_utc_s
        """Requests that arrived earlier are the ledger's to tell of."""
        self.budget, self.amount = budget, budget_amount(budget)
        self.window = window_at(budget.per, now_utc_s)
        self.base = 0
        """Spent in this window by none of the workers that hold leases."""
        self.base_excess = 0
        self.withheld = 0
        """Not lent, as it may be spent already."""
        self.founding: Founding = "due"
        self.leases: dict[int, Lease] = {}
        self.dead: dict[int, Lease] = {}
        """Leases of workers that died: all of it counts as spent until the ledger tells."""
        self.asks: dict[int, int] = {}
        """Who waits for how much, in order."""
        self.recalled: set[int] = set()
        self._born_utc_s = now_utc_s
        self._past: dict[int, _Past] = {}

    def configure(self, budget: BudgetConfig) -> None:
        """The budget's amount may have changed; its unit and period are its name's."""
        amount = budget_amount(budget)
        self.withheld = self.withheld * amount // self.amount
        self.budget, self.amount = budget, amount

    def roll(self, now_utc_s: float) -> None:
        """Begin another window if the time is in another one."""
        window = window_at(self.budget.per, now_utc_s)
        if window.number == self.window.number:
            return
        # Where the clock falls back into a window that was left, what was spent there still counts.
        spent = self.base + sum(lease.held for lease in self._lent())
        left = _Past(spent, self.founding, self.withheld, self.opened_utc_s)
        self._past[self.window.number] = left
        self.window = window
        found = self._past.pop(window.number, None) or self._unseen(window, now_utc_s)
        self.base, self.founding, self.withheld = found.spent, found.founding, found.withheld
        self.opened_utc_s = found.opened_utc_s
        if len(self._past) > _PAST_WINDOWS:
            del self._past[min(self._past)]
        self.base_excess = 0
        if self.part is not None:
            self.part = self.pool_part = self.blind_part = 0
            self.exhausted, self.renews_at_utc_s = False, None
        self.leases.clear()
        self.dead.clear()
        self.recalled.clear()

    def _unseen(self, window: Window, now_utc_s: float) -> _Past:
        """A window that begins; or one so long ago that only the ledger knows of it."""
        begins = window.starts_utc_s > self._born_utc_s and window.number > min(self._past)
        # Whatever is spent in one that begins, our own workers spend.
        return _Past(0, "done" if begins else "due", 0, now_utc_s)

    def found(self, spent: int) -> None:
        """The ledger has told what was spent before."""
        self.base += spent
        self.founding, self.withheld = "done", 0

    def lend_blind(self, ratio: float) -> None:
        """The ledger cannot tell what was spent before: lend no more than this part."""
        self.founding = "blind"
        self.withheld = self.amount - int(self.amount * ratio)
        if self.part is not None:
            self.blind_part = self.amount - self.withheld

    def report(self) -> PartReport | None:
        """What the pool is to be told; None: nothing yet, or nothing any more."""
        if self.part is None or self.founding != "done":
            return None
        spent = self.base + sum(lease.spent for lease in self._lent())
        kept = self.base + sum(lease.held for lease in self._lent())
        asked = next(iter(self.asks.values()), 0)
        wanted = max(0, asked - max(0, self.unlent))
        if not (self.part or kept or wanted) and self.pool_part == 0:
            return None
        return PartReport(
            account=self.name,
            window=self.window.number,
            ends_utc_s=self.window.ends_utc_s,
            amount=self.amount,
            part=self.part,
            spent=spent,
            kept=kept,
            wanted=wanted,
        )

    def pooled(self, grant: PartGrant, now_utc_s: float) -> list[Delivery]:
        """The pool's answer."""
        self.part = self.pool_part = grant.granted
        self.blind_part = 0
        if grant.recalled:  # from now on, which is what the next report says
            self.part = min(self.part, self.base + sum(lease.held for lease in self._lent()))
        self.exhausted = grant.last
        self.renews_at_utc_s = now_utc_s + _UNCERTAIN_RETRY_S if grant.uncertain else None
        return self._recall(None) if grant.recalled else []

    def pool_unreachable(self, ratio: float, now_utc_s: float) -> None:
        """The pool cannot be asked: lend so much of the budget beside what was granted, once."""
        if self.part is None or not self.asks:
            return
        if not self.blind_part:
            self.blind_part = int(self.amount * ratio)
        self.exhausted = True
        self.renews_at_utc_s = now_utc_s + _UNREACHABLE_RETRY_S

    def left(self, worker: int, *, settled: bool) -> None:
        """A worker has ended. `settled`: it has told all that it spent."""
        self.asks.pop(worker, None)
        self.recalled.discard(worker)
        lease = self.leases.pop(worker, None)
        if lease is None:
            return
        if settled or not lease.outstanding:
            self._retire(lease, lease.spent)
        else:
            self.dead[worker] = lease

    def reconcile(self, worker: int, spent: int | None) -> None:
        """What a worker that died has spent, by the ledger; None: nobody can tell, so all of it."""
        lease = self.dead.pop(worker, None)
        if lease is not None:
            # What it told itself may be missing in the ledger, where that could not be written.
            self._retire(lease, lease.held if spent is None else max(lease.spent, spent))

    def returned(self, worker: int, amount: int) -> None:
        """A worker gives back what it does not need now."""
        lease = self.leases.get(worker)
        if lease is None:
            return
        lease.granted = max(0, lease.granted - amount)
        if not lease.outstanding:
            self.recalled.discard(worker)
        if worker in self.asks:
            # It asked for what it lacked beside this: served with less, it had to ask again, and
            # two that need more than a half each could pass the budget to and fro for ever.
            self.asks[worker] += amount

    def _retire(self, lease: Lease, spent: int) -> None:
        self.base += spent
        self.base_excess += lease.excess

    def _lent(self) -> Iterable[Lease]:
        return (*self.leases.values(), *self.dead.values())

    @property
    def unlent(self) -> int:
        """What nobody has spent or holds; below 0 where the budget was lowered."""
        held = sum(lease.held for lease in self._lent())
        limit = self.amount - self.withheld
        if self.part is not None:
            limit = min(limit, self.part + self.blind_part)
        return limit - self.base - held

    def outstanding(self, but: int) -> int:
        """What others than the worker `but` hold and have not spent."""
        live = sum(lease.outstanding for worker, lease in self.leases.items() if worker != but)
        return live + sum(lease.outstanding for lease in self.dead.values())

    def serve(self, workers: int, now_utc_s: float) -> list[Delivery]:
        """Answer those who ask, in order, as far as it can be done now."""
        said: list[Delivery] = []
        while self.asks and self.founding != "due":
            worker, wanted = next(iter(self.asks.items()))
            unlent = max(0, self.unlent)
            if unlent >= wanted:
                chunk = unlent if workers <= 1 else -(-unlent // (_CHUNKS_PER_WORKER * workers))
                said.append(self._grant(worker, max(wanted, chunk), now_utc_s))
            elif self.outstanding(worker):
                said += self._recall(worker)
                break
            elif self.part is not None and not self.exhausted:
                break  # until the pool has answered
            else:
                said.append(self._grant(worker, unlent, now_utc_s, last=True))
            del self.asks[worker]
        if not self.asks:
            self.exhausted = False
        return said

    def recall_excess(self) -> list[Delivery]:
        """Ask for leases back where the budget was lowered below what is lent."""
        return self._recall(None) if self.unlent < 0 else []

    def _grant(self, worker: int, amount: int, now_utc_s: float, *, last: bool = False) -> Delivery:
        if amount:
            self.leases.setdefault(worker, Lease()).granted += amount
            self.recalled.discard(worker)
        renews_at_utc_s: float = self.window.ends_utc_s
        if last and self.renews_at_utc_s is not None:
            renews_at_utc_s = min(renews_at_utc_s, self.renews_at_utc_s)
        renews_s = max(0.0, renews_at_utc_s - now_utc_s)
        return worker, BudgetGranted(self.name, self.window.number, amount, renews_s, last)

    def _recall(self, asking: int | None) -> list[Delivery]:
        found = [
            worker
            for worker, lease in self.leases.items()
            if worker != asking and lease.outstanding and worker not in self.recalled
        ]
        self.recalled.update(found)
        return [(worker, BudgetRecalled(self.name, self.window.number)) for worker in found]

    def state(self) -> BudgetState:
        """How it stands, for people."""
        leases = list(self.leases.values())
        return BudgetState(
            account=self.name,
            tenant=self.tenant,
            unit=self.budget.unit,
            per=self.budget.per,
            amount=self.amount,
            spent=self.base + sum(lease.spent for lease in self._lent()),
            reserved=sum(lease.reserved for lease in leases),
            excess=self.base_excess + sum(lease.excess for lease in leases),
            window_ends_utc_s=self.window.ends_utc_s,
            possible_overshoot=self.blind_part
            or (self.amount - self.withheld if self.founding == "blind" else 0),
            uncertain=sum(lease.outstanding for lease in self.dead.values()),
        )
