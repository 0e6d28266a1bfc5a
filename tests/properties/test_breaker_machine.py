"""The breaker against an oracle that works out its state from the whole history each time."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mileage.policy.breaker import Breaker, BreakerConfig

CONFIG = BreakerConfig(failures_max=3, open_s=1.0, open_max_s=6.0)


@dataclass
class Attempt:
    """One attempt, as its host knows it; `era` counts how often the breaker opened before it."""

    ticket: int
    era: int
    probe: bool
    settled: bool = False


class BreakerMachine(RuleBasedStateMachine):
    """Attempts start while admitted, end in any order and way, and time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(CONFIG)
        self.now_s = 0.0
        self.attempts: list[Attempt] = []
        self.era = 0
        self.open_until_s: float | None = None
        self.bad_probes = 0  # openings in a row without a complete answer in between, less one
        self.outcomes: list[bool] = []  # of this era, while closed
        self.trial = False

    def half_open(self) -> bool:
        return self.open_until_s is not None and self.now_s >= self.open_until_s

    def probe_out(self) -> bool:
        return any(a.probe and a.era == self.era and not a.settled for a in self.attempts)

    def expected(self) -> str:
        if self.open_until_s is None:
            return "closed"
        return "half_open" if self.half_open() else "open"

    def opens(self, bad_probe: bool) -> None:
        self.bad_probes = self.bad_probes + 1 if bad_probe else 0
        self.open_until_s = self.now_s + min(CONFIG.open_s * 2**self.bad_probes, CONFIG.open_max_s)
        self.era += 1
        self.outcomes, self.trial = [], False

    @rule(passed_s=st.sampled_from([0.0, 0.3, 1.0, 2.5]))
    def time_passes(self, passed_s: float) -> None:
        self.now_s += passed_s
        before = self.breaker.admits
        assert self.breaker.tick(self.now_s) == (self.breaker.admits != before)

    @precondition(lambda self: self.breaker.admits)
    @rule()
    def attempt_starts(self) -> None:
        probe = self.half_open()
        assert not (probe and self.probe_out())
        self.attempts.append(Attempt(self.breaker.admit(), self.era, probe))

    def pick(self, data: st.DataObject) -> Attempt:
        return data.draw(st.sampled_from(self.attempts))

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def first_token_comes(self, data: st.DataObject) -> None:
        attempt = self.pick(data)
        current = attempt.era == self.era
        closes = current and self.half_open()
        assert self.breaker.first_token(attempt.ticket) == closes
        if closes:
            self.open_until_s, self.trial = None, True

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def attempt_succeeds(self, data: st.DataObject) -> None:
        attempt = self.pick(data)
        self.attempts.remove(attempt)
        current = attempt.era == self.era
        closes = current and self.half_open()
        assert self.breaker.succeeded(attempt.ticket) == closes
        if current:
            self.open_until_s, self.trial, self.bad_probes = None, False, 0
            self.outcomes.append(True)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def attempt_fails(self, data: st.DataObject) -> None:
        attempt = self.pick(data)
        self.attempts.remove(attempt)
        current = attempt.era == self.era
        bad_probe = current and (self.half_open() or self.trial)
        if current:
            self.outcomes.append(False)
        in_a_row = self.outcomes[-CONFIG.failures_max :] == [False] * CONFIG.failures_max
        opens = bad_probe or (current and in_a_row)
        assert self.breaker.failed(attempt.ticket, self.now_s) == opens
        if opens:
            self.opens(bad_probe)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def attempt_is_cancelled(self, data: st.DataObject) -> None:
        attempt = self.pick(data)
        self.attempts.remove(attempt)
        frees = attempt.era == self.era and attempt.probe and self.half_open()
        assert self.breaker.released(attempt.ticket) == frees

    @rule()
    def replica_restarts(self) -> None:
        before = self.breaker.admits
        assert self.breaker.reset() == (self.breaker.admits != before)
        self.open_until_s, self.trial, self.bad_probes = None, False, 0
        self.era += 1
        self.outcomes = []

    @invariant()
    def agrees_with_the_oracle(self) -> None:
        self.breaker.tick(self.now_s)
        state = self.expected()
        assert self.breaker.state == state
        assert self.breaker.admits == (
            state == "closed" or (state == "half_open" and not self.probe_out())
        )
        if state == "open":
            assert self.breaker.retry_at_s == self.open_until_s
            assert 0 < self.breaker.retry_at_s - self.now_s <= CONFIG.open_max_s + 1e-9
        if self.breaker.failures == 0:
            assert state == "closed"
            assert not self.trial


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
