"""Budgets hold over gateways: any interleaving of requests, reports, lost answers and deaths."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mileage.control.budget_pool import PartGrant, PartReport, PoolPart, exchange
from mileage.policy.tenants import BudgetConfig, TenantLimits
from tests.support.budget_world import BudgetWorld
from tests.support.controllers import request

AMOUNTS = {"a/tokens/hour": 40, "b/tokens/day": 25}
TENANTS = {
    "a": TenantLimits(budgets=(BudgetConfig(amount=40, unit="tokens", per="hour"),)),
    "b": TenantLimits(budgets=(BudgetConfig(amount=25, unit="tokens", per="day"),)),
}


class Gateways(RuleBasedStateMachine):
    """What requests cost is never above what was estimated: so no budget may be overspent."""

    def __init__(self) -> None:
        super().__init__()
        self.utc_s = 3600.0 * 5
        self.worlds: dict[str, BudgetWorld] = {}
        self.gone: dict[str, BudgetWorld] = {}
        self.sent: dict[str, list[PartReport]] = {}
        self.answers: dict[str, list[PartGrant]] = {}
        self.pool: dict[tuple[str, int], dict[str, PoolPart]] = {}
        self.requests = 0

    def start(self, name: str) -> None:
        world = self.worlds[name] = BudgetWorld(TENANTS, utc_s=self.utc_s, shared=True)
        if name in self.gone:
            world.charged = self.gone.pop(name).charged
        world.start_worker()

    def report(self, name: str, *, leaving: bool = False) -> None:
        """All of it at once: report, exchange and answer."""
        self.sent.pop(name, None)
        self.answers.pop(name, None)
        self.hear(name, self.worlds[name].treasury.reports(self.utc_s, leaving=leaving))
        self.worlds[name].pooled(self.answers.pop(name))

    def hear(self, name: str, reports: list[PartReport]) -> None:
        grants = []
        for one in reports:
            parts = self.pool.setdefault((one.account, one.window), {})
            parts.setdefault(name, PoolPart())
            for other, part in parts.items():
                part.live = other in self.worlds
            grants.append(exchange(parts, name, one))
        self.answers[name] = grants

    @initialize(count=st.integers(1, 3))
    def gateways_start(self, count: int) -> None:
        for index in range(count):
            self.start(str(index))
            self.worlds[str(index)].found()

    @rule(data=st.data(), tenant=st.sampled_from("aab"), most=st.integers(1, 20))
    @precondition(lambda self: self.worlds)
    def request_arrives(self, data: st.DataObject, tenant: str, most: int) -> None:
        world = self.worlds[data.draw(st.sampled_from(sorted(self.worlds)))]
        cost = data.draw(st.integers(0, most))
        self.requests += 1
        world.arrive(next(iter(world.workers)), request(self.requests, tenant=tenant), cost, most)

    @rule(data=st.data())
    @precondition(lambda self: any(f for w in self.worlds.values() for f in _flights(w)))
    def request_ends(self, data: st.DataObject) -> None:
        found = [(w, *f) for w in self.worlds.values() for f in _flights(w)]
        world, worker, number = data.draw(st.sampled_from(found))
        world.settle(worker, number)

    @rule(data=st.data())
    @precondition(lambda self: self.worlds)
    def messages_go_on(self, data: st.DataObject) -> None:
        self.worlds[data.draw(st.sampled_from(sorted(self.worlds)))].quiesce()

    @rule(data=st.data())
    @precondition(lambda self: self.worlds.keys() - {*self.sent, *self.answers})
    def gateway_reports(self, data: st.DataObject) -> None:
        idle = self.worlds.keys() - {*self.sent, *self.answers}
        name = data.draw(st.sampled_from(sorted(idle)))
        self.sent[name] = self.worlds[name].treasury.reports(self.utc_s)

    @rule(data=st.data())
    @precondition(lambda self: self.sent)
    def pool_hears(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.sent)))
        self.hear(name, self.sent.pop(name))

    @rule(data=st.data(), lost=st.sampled_from([False, False, False, True]))
    @precondition(lambda self: self.answers)
    def gateway_hears(self, data: st.DataObject, lost: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.answers)))
        grants = self.answers.pop(name)
        if not lost:
            self.worlds[name].pooled(grants)

    @rule(data=st.data())
    @precondition(lambda self: len(self.worlds) > 1)
    def gateway_is_killed(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.worlds)))
        world = self.gone[name] = self.worlds.pop(name)
        if name in self.sent:  # it is heard all the same
            self.hear(name, self.sent.pop(name))
        self.answers.pop(name, None)
        for worker in list(world.workers):
            world.kill(worker)

    @rule(data=st.data())
    @precondition(lambda self: len(self.worlds) > 1)
    def gateway_stops(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.worlds)))
        world = self.worlds[name]
        world.quiesce()
        if any(_flights(world)):
            return
        for worker in list(world.workers):
            world.stop(worker)
        self.report(name, leaving=True)
        self.gone[name] = self.worlds.pop(name)

    @rule(data=st.data(), founded=st.booleans())
    @precondition(lambda self: self.gone)
    def gateway_comes_back(self, data: st.DataObject, founded: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.gone)))
        self.start(name)
        if founded:
            self.worlds[name].found()

    @rule(data=st.data())
    @precondition(lambda self: self.worlds)
    def ledger_tells(self, data: st.DataObject) -> None:
        self.worlds[data.draw(st.sampled_from(sorted(self.worlds)))].found()

    @rule(seconds=st.sampled_from([1.0, 40.0, 1800.0]))
    def time_passes(self, seconds: float) -> None:
        self.utc_s += seconds
        for world in self.worlds.values():
            world.utc_s, world.mono_s = self.utc_s, world.mono_s + seconds

    @invariant()
    def no_budget_is_overspent(self) -> None:
        spent: dict[tuple[str, int], int] = {}
        for world in (*self.worlds.values(), *self.gone.values()):
            for key, amount in world.charged.items():
                spent[key] = spent.get(key, 0) + amount
        for (account, _), amount in spent.items():
            assert amount <= AMOUNTS[account]
        for (account, _), parts in self.pool.items():
            assert sum(part.held for part in parts.values()) <= AMOUNTS[account]

    def teardown(self) -> None:
        """Left alone, whoever waits is served or refused, and none for ever."""
        for world in self.worlds.values():
            world.found()
        for _ in range(60):
            for name, world in self.worlds.items():
                world.quiesce()
                for worker, number in list(_flights(world)):
                    world.settle(worker, number)
                world.quiesce()
                self.report(name)
        for world in self.worlds.values():
            world.quiesce()
            assert not any(one.held for one in world.workers.values())


def _flights(world: BudgetWorld) -> list[tuple[int, int]]:
    return [(worker, number) for worker, one in world.workers.items() for number in one.flights]


TestBudgetsOfGateways = Gateways.TestCase
TestBudgetsOfGateways.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
