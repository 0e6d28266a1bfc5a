"""The desk: serves workers from the treasury, and asks the ledger what only that knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from mileage.control.accounts import AccountSpend
from mileage.control.budget_pool import PartGrant, PartReport
from mileage.core.actions import AskBudget
from mileage.core.errors import LedgerError
from mileage.core.events import BudgetGranted, BudgetRecalled
from mileage.gateway.budget_desk import BudgetDesk, SpendQuery
from mileage.gateway.messages import BudgetTalk
from mileage.policy.tenants import BudgetConfig, TenantLimits

DAY = "acme/tokens/day"
NOON = 12 * 3600.0
TENANTS = {
    "acme": TenantLimits(budgets=(BudgetConfig(amount=1000, unit="tokens", per="day"),)),
}


class Ledger:
    """Answers what it is set to, or raises; counts how often it was asked."""

    def __init__(self) -> None:
        self.answers: list[int | Exception] = []
        self.asked: list[SpendQuery] = []

    async def read(self, queries: Sequence[SpendQuery]) -> list[int]:
        self.asked += queries
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer] * len(queries)


class Desk:
    """A desk whose ledger and clock a test sets; `said` is what workers were told."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.now_utc_s = NOON
        self.said: list[tuple[int, BudgetGranted | BudgetRecalled]] = []
        self.desk = BudgetDesk(
            self.ledger.read,
            lambda pid, event: self.said.append((pid, event)),
            utc_s=lambda: self.now_utc_s,
            retry_s=0.0,
        )

    def configure(self, on_failure: str = "open") -> None:
        self.desk.configure(
            TENANTS,
            on_failure=on_failure,  # type: ignore[arg-type]
            lease_ratio=0.1,
        )

    def ask(self, pid: int, amount: int = 5, spent: int | None = None) -> None:
        spends = () if spent is None else (AccountSpend(account=DAY, window=0, spent=spent),)
        self.desk.heard(pid, BudgetTalk(spends=spends, actions=(AskBudget(DAY, 0, amount),)))

    def granted(self) -> list[tuple[int, int, bool]]:
        """To whom, how much, and whether that was the last; since it was asked for last."""
        said, self.said = self.said, []
        return [(pid, e.amount, e.last) for pid, e in said if isinstance(e, BudgetGranted)]


async def until(condition: Callable[[], bool]) -> None:
    """Let the desk's task go on until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("never")


def beside(check: Callable[[Desk], Awaitable[None]]) -> None:
    """Run the check beside the desk's task."""

    async def main() -> None:
        desk = Desk()
        task = asyncio.create_task(desk.desk.run())
        try:
            await check(desk)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_what_was_spent_before_the_start_is_asked_of_the_ledger() -> None:
    async def check(desk: Desk) -> None:
        desk.ledger.answers = [400]
        desk.configure()
        desk.desk.joined(7, 0)
        desk.ask(7)
        assert desk.granted() == []
        await until(lambda: bool(desk.said))
        assert desk.granted() == [(7, 600, False)]
        (query,) = desk.ledger.asked
        assert query == SpendQuery(account=DAY, since_utc_s=0.0, before_utc_s=NOON)

    beside(check)


def test_a_worker_that_died_is_looked_up_by_its_index_and_lifetime() -> None:
    async def check(desk: Desk) -> None:
        desk.ledger.answers = [0, 150]
        desk.configure()
        desk.now_utc_s = NOON + 10
        desk.desk.joined(7, 3)
        desk.ask(7)
        await until(lambda: bool(desk.said))
        desk.granted()
        desk.now_utc_s = NOON + 60
        desk.desk.left(7, settled=False)
        desk.desk.joined(8, 3)
        desk.ask(8)
        await until(lambda: bool(desk.said))
        assert desk.granted() == [(8, 850, False)]
        assert desk.ledger.asked[-1] == SpendQuery(
            account=DAY, since_utc_s=NOON + 10, before_utc_s=NOON + 60, worker=3
        )

    beside(check)


def test_a_worker_that_drained_needs_no_ledger() -> None:
    async def check(desk: Desk) -> None:
        desk.ledger.answers = [0]
        desk.configure()
        desk.desk.joined(7, 0)
        desk.ask(7)
        await until(lambda: bool(desk.said))
        desk.desk.heard(7, BudgetTalk(spends=(AccountSpend(account=DAY, window=0, spent=100),)))
        desk.desk.left(7, settled=True)
        desk.desk.joined(8, 0)
        desk.granted()
        desk.ask(8)
        assert desk.granted() == [(8, 900, False)]

    beside(check)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(LedgerError("ledger", "is behind"), id="foreseen"),
        pytest.param(ZeroDivisionError("a bug"), id="not foreseen"),
    ],
)
def test_open_lends_a_part_says_so_and_asks_again(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(desk: Desk) -> None:
        desk.ledger.answers = [failure, failure, 300]
        desk.configure()
        desk.desk.joined(7, 0)
        desk.ask(7)
        await until(lambda: bool(desk.said))
        assert desk.granted() == [(7, 100, False)]
        await until(lambda: len(desk.ledger.asked) == 3)
        await until(lambda: desk.desk.states()[0].possible_overshoot == 0)
        assert desk.desk.states()[0].spent == 300

    beside(check)
    assert f"may be overshot: {DAY} by 100" in caplog.text
    assert "tells again" in caplog.text


def test_closed_lends_nothing_until_the_ledger_tells(caplog: pytest.LogCaptureFixture) -> None:
    async def check(desk: Desk) -> None:
        desk.ledger.answers = [LedgerError("ledger", "is behind"), 300]
        desk.configure("closed")
        desk.desk.joined(7, 0)
        desk.ask(7)
        await until(lambda: bool(desk.said))
        assert desk.granted() == [(7, 0, True)]
        await until(lambda: len(desk.ledger.asked) == 2)
        desk.ask(7)
        await until(lambda: bool(desk.said))
        assert desk.granted() == [(7, 700, False)]

    beside(check)
    assert "budgets cannot be granted" in caplog.text


def test_without_budgets_nothing_is_asked() -> None:
    async def check(desk: Desk) -> None:
        desk.desk.configure({}, on_failure="open", lease_ratio=0.1)
        desk.desk.joined(7, 0)
        desk.desk.left(7, settled=False)
        for _ in range(20):
            await asyncio.sleep(0)
        assert desk.ledger.asked == []
        assert desk.desk.states() == []

    beside(check)


class Pool:
    """A pool that grants what it is set to, or raises."""

    def __init__(self) -> None:
        self.reports: list[list[PartReport]] = []
        self.error: LedgerError | None = None
        self.granted = 300

    async def exchange(self, reports: Sequence[PartReport]) -> list[PartGrant]:
        self.reports.append(list(reports))
        if self.error is not None:
            raise self.error
        return [
            PartGrant(account=one.account, window=one.window, granted=self.granted)
            for one in reports
        ]


def test_with_other_gateways_the_pool_is_asked_at_once_and_given_back_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        desk, pool = Desk(), Pool()
        desk.desk = BudgetDesk(
            desk.ledger.read,
            lambda pid, event: desk.said.append((pid, event)),
            utc_s=lambda: desk.now_utc_s,
            pool=pool.exchange,
        )
        task = asyncio.create_task(desk.desk.run())
        try:
            desk.ledger.answers = [100]
            desk.configure()
            await until(lambda: not desk.ledger.answers)
            desk.desk.joined(7, 0)
            desk.ask(7, 50)
            await until(lambda: bool(desk.said))
            assert desk.granted() == [(7, 200, False)]
            (report,) = pool.reports[-1]
            assert (report.spent, report.kept, report.wanted) == (100, 100, 50)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        desk.desk.left(7, settled=True)
        await desk.desk.leave()
        (report,) = pool.reports[-1]
        assert (report.part, report.kept) == (0, 100)
        pool.error = LedgerError("postgresql://db/m", "gone")
        await desk.desk.leave()
        assert "could not be given back" in caplog.text

    asyncio.run(check())
