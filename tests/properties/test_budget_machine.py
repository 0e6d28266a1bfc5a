"""Budgets hold: any interleaving of requests, messages, deaths, windows, clocks and reloads."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from mileage.control.accounts import window_at
from mileage.core.request import Request
from mileage.policy.tenants import BudgetConfig, TenantLimits
from tests.support.budget_world import BudgetWorld
from tests.support.controllers import request

HOUR_BUDGET = 40
DAY_BUDGET = 100
TENANTS = {
    "a": TenantLimits(
        budgets=(
            BudgetConfig(amount=HOUR_BUDGET, unit="tokens", per="hour"),
            BudgetConfig(amount=DAY_BUDGET, unit="tokens", per="day"),
        )
    ),
    "b": TenantLimits(budgets=(BudgetConfig(amount=15, unit="tokens", per="day"),)),
}
AMOUNTS = {"a/tokens/hour": HOUR_BUDGET, "a/tokens/day": DAY_BUDGET, "b/tokens/day": 15}


class BudgetMachine(RuleBasedStateMachine):
    """What requests cost is never above what was estimated: so no budget may be overspent."""

    def __init__(self) -> None:
        super().__init__()
        self.world = BudgetWorld(TENANTS, utc_s=3600.0 * 23)
        self.requests = 0

    def workers(self) -> list[int]:
        return list(self.world.workers)

    def request_of(self, tenant: str) -> Request:
        self.requests += 1
        return request(self.requests, tenant=tenant)

    @initialize(workers=st.integers(1, 3), founded=st.sampled_from([True, True, False]))
    def gateway_starts(self, workers: int, founded: bool) -> None:
        for _ in range(workers):
            self.world.start_worker()
        if founded:
            self.world.found(5)

    @precondition(lambda self: self.world.treasury.unfounded(self.world.utc_s))
    @rule(spent=st.integers(0, 10))
    def ledger_tells(self, spent: int) -> None:
        self.world.found(spent)

    @precondition(lambda self: len(self.world.workers) < 3)
    @rule()
    def worker_starts(self) -> None:
        self.world.start_worker()

    @precondition(lambda self: self.world.workers)
    @rule(data=st.data(), tenant=st.sampled_from("aab"), most=st.integers(1, 20))
    def request_arrives(self, data: st.DataObject, tenant: str, most: int) -> None:
        worker = data.draw(st.sampled_from(self.workers()))
        likely = data.draw(st.integers(1, most))
        cost = data.draw(st.integers(0, likely))
        self.world.arrive(worker, self.request_of(tenant), cost, most, likely)

    @precondition(lambda self: any(w.flights for w in self.world.workers.values()))
    @rule(data=st.data())
    def request_ends(self, data: st.DataObject) -> None:
        flights = [(w, r) for w, one in self.world.workers.items() for r in one.flights]
        self.world.settle(*data.draw(st.sampled_from(flights)))

    @precondition(lambda self: any(w.to_treasury for w in self.world.workers.values()))
    @rule(data=st.data())
    def treasury_hears(self, data: st.DataObject) -> None:
        telling = [w for w, one in self.world.workers.items() if one.to_treasury]
        self.world.step_up(data.draw(st.sampled_from(telling)))

    @precondition(lambda self: any(w.from_treasury for w in self.world.workers.values()))
    @rule(data=st.data())
    def worker_hears(self, data: st.DataObject) -> None:
        told = [w for w, one in self.world.workers.items() if one.from_treasury]
        self.world.step_down(data.draw(st.sampled_from(told)))

    @precondition(lambda self: self.world.workers)
    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        self.world.kill(data.draw(st.sampled_from(self.workers())))

    @precondition(lambda self: any(not w.flights for w in self.world.workers.values()))
    @rule(data=st.data())
    def worker_stops(self, data: st.DataObject) -> None:
        idle = [w for w, one in self.world.workers.items() if not one.flights]
        self.world.stop(data.draw(st.sampled_from(idle)))

    @precondition(lambda self: self.world.dead)
    @rule(data=st.data(), known=st.booleans())
    def ledger_tells_of_the_dead(self, data: st.DataObject, known: bool) -> None:
        self.world.reconcile(data.draw(st.sampled_from(list(self.world.dead))), known=known)

    @rule(passed_s=st.sampled_from([0.1, 60.0, 1800.0, 3600.0, 86_400.0]))
    def time_passes(self, passed_s: float) -> None:
        self.world.utc_s += passed_s
        self.world.mono_s += passed_s

    @rule(jump_s=st.sampled_from([-1800.0, -1.0, 1800.0]))
    def wall_clock_jumps(self, jump_s: float) -> None:
        self.world.utc_s = max(0.0, self.world.utc_s + jump_s)

    @rule(jump_s=st.sampled_from([-1800.0, 1800.0]))
    def monotonic_clock_jumps(self, jump_s: float) -> None:
        self.world.mono_s += jump_s

    @invariant()
    def no_budget_is_overspent(self) -> None:
        for (account, _), charged in self.world.charged.items():
            assert charged <= AMOUNTS[account]

    def teardown(self) -> None:
        """When all has ended, nobody is left waiting; and who was refused could not be served."""
        world = self.world
        if world.treasury.unfounded(world.utc_s):
            world.found(0)
        for dead in list(world.dead):
            world.reconcile(dead)
        for _ in range(10_000):
            world.quiesce()
            flights = [(w, r) for w, one in world.workers.items() for r in one.flights]
            if not flights:
                break
            world.settle(*flights[0])
        assert not any(one.held for one in world.workers.values())
        self.no_budget_is_overspent()
        self.what_the_treasury_says_is_what_was_charged()

    def what_the_treasury_says_is_what_was_charged(self) -> None:
        world = self.world
        for worker in self.workers():
            world.stop(worker)
        for state in world.treasury.states(world.utc_s):
            window = window_at(state.per, world.utc_s)  # type: ignore[arg-type]
            assert state.spent >= world.charged.get((state.account, window.number), 0)


BudgetMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestBudgetMachine = BudgetMachine.TestCase
