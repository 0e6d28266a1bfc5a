"""BudgetDesk: the supervisor's side of budgets: the treasury, and what the ledger tells it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from mileage.control.accounts import AccountSpend
from mileage.control.budget_pool import PartGrant, PartReport
from mileage.control.lending import BudgetState, Delivery
from mileage.control.treasury import OpenAccount, Treasury
from mileage.core.errors import MileageError
from mileage.core.events import BudgetGranted, BudgetRecalled
from mileage.gateway.messages import BudgetTalk
from mileage.policy.tenants import TenantLimits

__all__ = ["BudgetDesk", "ExchangeParts", "ReadSpent", "SpendQuery"]

_RETRY_S = 5.0
_POOL_PERIOD_S = 0.5
"""So often the pool hears of this gateway, and it of others that wait."""
_POOL_PAUSE_S = 0.04
"""Between two words to the pool while somebody waits for it; doubled while nothing comes of it."""
_POOL_PAUSE_MAX_S = 0.32
_POOL_WAIT_S = 10.0
_log = logging.getLogger(__name__)


class SpendQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent of an account by requests that arrived in this time; by one worker's, where
    its index is given."""

    account: str
    since_utc_s: float
    before_utc_s: float
    worker: int | None = None


ReadSpent: TypeAlias = Callable[[Sequence[SpendQuery]], Awaitable[list[int]]]
"""Asks the ledger, which is to know all that was logged before; raises MileageError."""
ExchangeParts: TypeAlias = Callable[[Sequence[PartReport]], Awaitable[list[PartGrant]]]
"""Tells the pool of all gateways, and gives its answers; raises MileageError."""


class _Worker(msgspec.Struct):
    """One worker process; `lived` from when to when, None while it does."""

    index: int
    started_utc_s: float
    ended_utc_s: float | None = None


class BudgetDesk:
    """Serves the workers from one treasury, and asks the ledger where only that knows.

    `tell` delivers an event to the worker with this process id. While the ledger cannot tell what
    was spent before, `configure`'s policy holds: open lends `lease_ratio` of each budget, closed
    lends nothing; either is tried again until the ledger can. `run` is to run beside all that.

    With a `pool` the budgets are those of several gateways, and this one lends what that grants it.
    """

    def __init__(
        self,
        read_spent: ReadSpent,
        tell: Callable[[int, BudgetGranted | BudgetRecalled], None],
        *,
        utc_s: Callable[[], float] = time.time,
        retry_s: float = _RETRY_S,
        pool: ExchangeParts | None = None,
    ) -> None:
        self._read_spent, self._tell, self._utc_s, self._retry_s = read_spent, tell, utc_s, retry_s
        self._pool = pool
        self._treasury = Treasury({}, now_utc_s=utc_s(), shared=pool is not None)
        self._on_failure: Literal["open", "closed"] = "open"
        self._lease_ratio = 0.0
        self._workers: dict[int, _Worker] = {}
        self._dead: dict[int, _Worker] = {}
        self._asked = asyncio.Event()
        self._blind = False
        self._lacking = asyncio.Event()
        self._pool_error: str | None = None

    def configure(
        self,
        tenants: Mapping[str, TenantLimits],
        *,
        on_failure: Literal["open", "closed"],
        lease_ratio: float,
    ) -> None:
        """Other budgets; to be told before the workers are."""
        self._on_failure, self._lease_ratio = on_failure, lease_ratio
        self._deliver(self._treasury.configure(tenants, self._utc_s()))
        self._asked.set()

    def joined(self, pid: int, index: int) -> None:
        """A worker process has started."""
        self._workers[pid] = _Worker(index, self._utc_s())
        self._treasury.joined(pid)

    def heard(self, pid: int, talk: BudgetTalk) -> None:
        """A worker tells what it has spent, and what it wants."""
        self._deliver(self._treasury.heard(pid, talk.spends, talk.actions, self._utc_s()))
        self._asked.set()  # a clock that fell back may have found a window that is not known
        if self._pool is not None and self._treasury.waits_for_pool:
            self._lacking.set()

    def left(self, pid: int, *, settled: bool) -> None:
        """A worker process has ended, after all that it said; `settled`: it had drained."""
        worker = self._workers.pop(pid, None)
        now_utc_s = self._utc_s()
        self._deliver(self._treasury.left(pid, settled=settled, now_utc_s=now_utc_s))
        if worker is not None and not settled:
            worker.ended_utc_s = now_utc_s
            self._dead[pid] = worker
            self._asked.set()

    def states(self) -> list[BudgetState]:
        """How all budgets stand."""
        return self._treasury.states(self._utc_s())

    async def run(self) -> None:
        """Ask the ledger whenever there is something that only it knows, and the pool all the
        time; until cancelled."""
        if self._pool is None:
            await self._ask()
        else:
            await asyncio.gather(self._ask(), self._share(self._pool))

    async def leave(self) -> None:
        """Give back to the pool what was not spent, after the last worker has ended."""
        reports = self._treasury.reports(self._utc_s(), leaving=True)
        if self._pool is None or not reports:
            return
        try:
            await self._pool(reports)
        except MileageError as error:
            _log.warning("what is left of budgets could not be given back: %s", error)

    async def _share(self, pool: ExchangeParts) -> None:
        """Keep the pool told, at once where somebody asks for more than this gateway has, and soon
        where another one waits for what is to come back."""
        pause_s = _POOL_PAUSE_S
        known: list[PartGrant] = []
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lacking.wait(), _POOL_PERIOD_S)
            try:
                reports = self._treasury.reports(self._utc_s())
                grants = await asyncio.wait_for(pool(reports), _POOL_WAIT_S) if reports else []
                self._deliver(self._treasury.pooled(grants, self._utc_s()))
                self._pool_told(None)
                pause_s = _POOL_PAUSE_S if grants != known else min(2 * pause_s, _POOL_PAUSE_MAX_S)
                known = grants
            except Exception as error:
                if not isinstance(error, MileageError | TimeoutError):
                    _log.exception("budgets could not be shared with other gateways")
                self._pool_told(str(error) or type(error).__name__)
                await asyncio.sleep(_POOL_PERIOD_S)
            await asyncio.sleep(pause_s)
            if self._treasury.waits_for_pool or any(grant.recalled for grant in known):
                self._lacking.set()
            else:
                self._lacking.clear()

    def _pool_told(self, error: str | None) -> None:
        """The pool answered, or did not: then what was granted is lent, and the policy holds."""
        if error is not None:
            policy = self._on_failure, self._lease_ratio
            self._deliver(self._treasury.pool_unreachable(*policy, self._utc_s()))
        if (error is None) != (self._pool_error is None):
            if error is None:
                _log.warning("budgets are shared with other gateways again")
            else:
                _log.error("budgets cannot be shared with other gateways: %s", error)
        self._pool_error = error

    async def _ask(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self._ask_ledger()
            except MileageError as error:
                self._unreadable(error)
            except Exception as error:
                _log.exception("what was spent of budgets could not be read")
                self._unreadable(error)
            else:
                continue
            await asyncio.sleep(self._retry_s)
            self._asked.set()

    async def _ask_ledger(self) -> None:
        due = self._treasury.unfounded(self._utc_s())
        if due:
            self._deliver(self._treasury.found(await self._read(due, None), self._utc_s()))
            if self._blind:
                self._blind = False
                _log.warning("the ledger tells again what was spent of budgets before")
        for pid, worker in list(self._dead.items()):
            accounts = self._treasury.accounts(self._utc_s())
            spends = await self._read(accounts, worker) if accounts else []
            self._deliver(self._treasury.reconcile(pid, spends, self._utc_s()))
            del self._dead[pid]

    async def _read(
        self, accounts: Sequence[OpenAccount], worker: _Worker | None
    ) -> list[AccountSpend]:
        queries = [_query(account, worker) for account in accounts]
        return [
            AccountSpend(account=account.account, window=account.window.number, spent=spent)
            for account, spent in zip(accounts, await self._read_spent(queries), strict=True)
        ]

    def _unreadable(self, error: Exception) -> None:
        now_utc_s = self._utc_s()
        self._deliver(
            self._treasury.ledger_unreadable(self._on_failure, self._lease_ratio, now_utc_s)
        )
        if self._blind or not self._treasury.unfounded(now_utc_s):
            return
        self._blind = True
        if self._on_failure == "closed":
            _log.error(
                "budgets cannot be granted, the ledger does not tell what is spent: %s", error
            )
            return
        overshoot = [
            f"{state.account} by {state.possible_overshoot}"
            for state in self.states()
            if state.possible_overshoot
        ]
        _log.error(
            "the ledger does not tell what was spent of budgets before (%s); "
            "in this window they may be overshot: %s",
            error,
            ", ".join(overshoot),
        )

    def _deliver(self, said: Iterable[Delivery]) -> None:
        for pid, event in said:
            self._tell(pid, event)


def _query(account: OpenAccount, worker: _Worker | None) -> SpendQuery:
    """What only the ledger knows: what came before the account was opened, or a dead worker's."""
    starts = float(account.window.starts_utc_s)
    if worker is None:
        return SpendQuery(
            account=account.account, since_utc_s=starts, before_utc_s=account.opened_utc_s
        )
    assert worker.ended_utc_s is not None
    return SpendQuery(
        account=account.account,
        since_utc_s=max(starts, account.opened_utc_s, worker.started_utc_s),
        before_utc_s=worker.ended_utc_s,
        worker=worker.index,
    )
