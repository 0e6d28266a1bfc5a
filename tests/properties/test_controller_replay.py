"""The controller under any sequence of events: what always holds, and that a replay is the same."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, Dispatch, Reject, WakeAt
from mileage.core.events import (
    Arrived,
    Cancelled,
    Event,
    Failed,
    FailureKind,
    Finished,
    FirstToken,
    Observed,
    ReplicaDown,
    ReplicaUp,
    Woke,
)
from mileage.core.replica import ReplicaView
from mileage.core.request import Endpoint, Request
from mileage.policy.breaker import BreakerConfig
from mileage.policy.routing import RoutingConfig
from tests.support.experiments import any_experiment

NAMES = ("a", "b", "c", "d")
MODELS = ("llama", "qwen")
LACKS: dict[str, tuple[Endpoint, ...]] = {"c": ("responses",), "d": ("messages", "responses")}
ENDPOINTS: tuple[Endpoint, ...] = ("chat", "messages", "responses")
ATTEMPTS_MAX = 3
LOST_MAX = 2
"""Attempts that may end in a lost connection or in silence: it may be the request that does it."""
IN_FLIGHT_MAX = 12
KINDS: tuple[FailureKind, ...] = ("connect", "timeout", "broken", "status", "busy")


def new_controller(seed: int) -> Controller:
    return Controller(
        NAMES,
        config=ControlConfig(
            routing=RoutingConfig(attempts_max=ATTEMPTS_MAX),
            breaker=BreakerConfig(failures_max=2, open_s=1.0, open_max_s=4.0),
            governor=GovernorConfig(mode="off"),
        ),
        random=Random(seed),
        lacks=LACKS,
        in_flight_max=IN_FLIGHT_MAX,
    )


class Flight(msgspec.Struct):
    """A request in flight, as the host knows it."""

    model: str
    endpoint: Endpoint
    replica: str
    tried: list[str]
    probe: bool
    lost: int = 0


class ControllerMachine(RuleBasedStateMachine):
    """A host that sends every kind of event at any time, and checks every answer."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.next_id = 0
        self.flights: dict[int, Flight] = {}
        self.up: set[str] = set()
        self.models: dict[str, tuple[str, ...]] = dict.fromkeys(NAMES, ())
        self.ever_up = False
        self.wake_s: float | None = None
        self.journal: list[tuple[float, Event, tuple[Action, ...]]] = []

    @initialize(seed=st.integers(0, 5), up=st.lists(st.sampled_from(NAMES), min_size=1))
    def some_are_up(self, seed: int, up: list[str]) -> None:
        self.seed = seed
        self.controller = new_controller(seed)
        for name in up:
            self.replica_is_up(name, ("llama",), True)

    def handle(self, event: Event) -> list[Action]:
        """Tell the controller; keep the journal; take the wake-up out."""
        actions = tuple(self.controller.handle(event, self.now_s))
        self.journal.append((self.now_s, event, actions))
        left: list[Action] = []
        for action in actions:
            if isinstance(action, WakeAt):
                assert action.at_s > self.now_s
                self.wake_s = action.at_s
            else:
                left.append(action)
        return left

    def states(self) -> dict[str, str]:
        return {state.name: state.state for state in self.controller.replica_states()}

    def serving(self, model: str, endpoint: Endpoint) -> list[str]:
        """Replicas that have both, up or down."""
        return [n for n in NAMES if model in self.models[n] and endpoint not in LACKS.get(n, ())]

    def check_target(
        self, model: str, endpoint: Endpoint, action: Dispatch, before: dict[str, str]
    ) -> None:
        replica = action.replica
        assert replica in self.up
        assert replica in self.serving(model, endpoint)
        # One whose time had come was still called open before this event.
        assert before[replica] != "down"
        if before[replica] == "half_open":
            assert not any(f.probe and f.replica == replica for f in self.flights.values())

    @rule(passed_s=st.sampled_from([0.0, 0.01, 0.5, 1.0, 3.0, 20.0]))
    def time_passes(self, passed_s: float) -> None:
        self.now_s += passed_s
        if self.wake_s is not None and self.now_s >= self.wake_s:
            self.wake_s = None
            assert self.handle(Woke()) == []

    @rule(
        model=st.sampled_from([*MODELS, "nonsense"]),
        endpoint=st.sampled_from(ENDPOINTS),
        prompt_tokens=st.integers(0, 5000),
        prefix_key=st.none() | st.integers(0, 2**64 - 1),
        output_tokens_max=st.none() | st.integers(0, 100),
    )
    def request_arrives(
        self,
        model: str,
        endpoint: Endpoint,
        prompt_tokens: int,
        prefix_key: int | None,
        output_tokens_max: int | None,
    ) -> None:
        self.next_id += 1
        before = self.states()
        (action,) = self.handle(
            Arrived(
                Request(
                    id=self.next_id,
                    tenant="acme",
                    model=model,
                    endpoint=endpoint,
                    stream=True,
                    arrived_s=self.now_s,
                    prompt_tokens_estimate=prompt_tokens,
                    prefix_key=prefix_key,
                    output_tokens_max=output_tokens_max,
                )
            )
        )
        if isinstance(action, Dispatch):
            assert action.request_id == self.next_id
            self.check_target(model, endpoint, action, before)
            if len(self.flights) == IN_FLIGHT_MAX:
                del self.flights[next(iter(self.flights))]
            probe = self.states()[action.replica] == "half_open"
            self.flights[self.next_id] = Flight(
                model, endpoint, action.replica, [action.replica], probe
            )
            return
        assert isinstance(action, Reject)
        serving = self.serving(model, endpoint)
        after = self.states()
        if not any(model in models for models in self.models.values()):
            assert action.reason == ("model_not_found" if self.ever_up else "no_replica")
            assert action.retry_after_s is None
        elif not serving:
            assert action == Reject(self.next_id, "endpoint_not_supported")
        else:
            assert action.reason == "no_replica"
            assert all(after[name] != "up" for name in serving)
            assert (action.retry_after_s is not None) == any(
                after[name] == "open" for name in serving
            )
            if action.retry_after_s is not None:
                assert 0 < action.retry_after_s <= 4.0 + 1e-9

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def first_token_comes(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.flights)))
        flight = self.flights[request_id]
        assert self.handle(FirstToken(request_id)) == []
        flight.probe = False

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), output_tokens=st.none() | st.integers(0, 3000))
    def request_finishes(self, data: st.DataObject, output_tokens: int | None) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.flights)))
        del self.flights[request_id]
        assert self.handle(Finished(request_id, 100, None, output_tokens)) == []

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.flights)))
        del self.flights[request_id]
        assert self.handle(Cancelled(request_id)) == []

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), retryable=st.booleans())
    def attempt_fails(self, data: st.DataObject, kind: FailureKind, retryable: bool) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.flights)))
        flight = self.flights[request_id]
        flight.probe = False
        flight.lost += kind in ("broken", "timeout")
        before = self.states()
        actions = self.handle(Failed(request_id, flight.replica, kind, retryable))
        if kind == "busy":
            now = self.states()[flight.replica]
            assert now == before[flight.replica] or (before[flight.replica], now) == (
                "open",
                "half_open",
            )
        if not retryable:
            assert actions == []
            del self.flights[request_id]
            return
        (action,) = actions
        if isinstance(action, Dispatch):
            assert action.request_id == request_id
            assert len(flight.tried) < ATTEMPTS_MAX
            assert flight.lost < LOST_MAX
            self.check_target(flight.model, flight.endpoint, action, before)
            if action.replica in flight.tried:
                assert action.replica == flight.replica
                assert kind in ("connect", "broken")
                serving = self.serving(flight.model, flight.endpoint)
                assert [n for n in serving if self.states()[n] == "up"] == [action.replica]
            flight.replica = action.replica
            flight.tried.append(action.replica)
            flight.probe = self.states()[action.replica] == "half_open"
            return
        assert isinstance(action, Reject)
        assert action.reason == ("busy" if kind == "busy" else "upstream_failed")
        if len(flight.tried) < ATTEMPTS_MAX and flight.lost < LOST_MAX:
            after = self.states()
            assert not any(
                after[name] == "up"
                for name in self.serving(flight.model, flight.endpoint)
                if name not in flight.tried
            )
        del self.flights[request_id]

    @rule(request_id=st.integers(-3, 3), replica=st.sampled_from(NAMES))
    def word_comes_of_an_unknown_request(self, request_id: int, replica: str) -> None:
        request_id = request_id if request_id < 0 else self.next_id + 1 + request_id
        for event in (
            FirstToken(request_id),
            Finished(request_id),
            Cancelled(request_id),
            Failed(request_id, replica, "connect", False),
        ):
            assert self.handle(event) == []
        failed = Failed(request_id, replica, "connect", True)
        assert self.handle(failed) == [Reject(request_id, "upstream_failed")]

    @rule(
        name=st.sampled_from(NAMES),
        models=st.lists(st.sampled_from(MODELS), unique=True).map(tuple),
        again=st.booleans(),
    )
    def replica_is_up(self, name: str, models: tuple[str, ...], again: bool) -> None:
        for _ in range(1 + again):
            assert self.handle(ReplicaUp(name, models)) == []
        if name not in self.up:
            for flight in self.flights.values():
                if flight.replica == name:
                    flight.probe = False  # sent to what was there before
        self.up.add(name)
        self.models[name] = models
        self.ever_up = True

    @rule(name=st.sampled_from(NAMES))
    def replica_is_down(self, name: str) -> None:
        assert self.handle(ReplicaDown(name, "health check")) == []
        self.up.discard(name)

    @rule(
        name=st.sampled_from([*NAMES, "unknown"]),
        age_s=st.sampled_from([0.0, 0.5, 15.0]),
        running=st.none() | st.integers(0, 100),
        waiting=st.none() | st.integers(0, 100),
        tokens=st.none() | st.floats(0, 1e9),
        kv_ratio=st.none() | st.floats(0, 1),
    )
    def replica_is_scraped(
        self,
        name: str,
        age_s: float,
        running: int | None,
        waiting: int | None,
        tokens: float | None,
        kv_ratio: float | None,
    ) -> None:
        view = ReplicaView(
            replica=name,
            observed_s=self.now_s - age_s,
            running=running,
            waiting=waiting,
            prompt_tokens_total=tokens,
            output_tokens_total=tokens,
            preemptions_total=tokens,
            kv_cache_usage_ratio=kv_ratio,
        )
        assert self.handle(Observed(view)) == []

    @rule(seed=st.integers(0, 2**32))
    def experiment_changes(self, seed: int) -> None:
        assert self.handle(any_experiment(NAMES, Random(seed), self.now_s)) == []

    @invariant()
    def counts_agree_with_the_host(self) -> None:
        if not hasattr(self, "controller"):
            return
        assert self.controller.in_flight == len(self.flights) <= IN_FLIGHT_MAX
        for state in self.controller.replica_states():
            assert state.in_flight == sum(f.replica == state.name for f in self.flights.values())
            assert (state.state == "down") == (state.name not in self.up)
            assert (state.reason is None) == (state.state == "up")

    @invariant()
    def every_open_breaker_will_be_looked_at(self) -> None:
        if hasattr(self, "controller") and "open" in self.states().values():
            assert self.wake_s is not None

    def teardown(self) -> None:
        """Replay the journal as it is, and through JSON; then end all requests."""
        if not hasattr(self, "controller"):
            return
        decoder = msgspec.json.Decoder(list[tuple[float, Event, tuple[Action, ...]]])
        written = decoder.decode(msgspec.json.encode(self.journal))
        for journal in (self.journal, written):
            replayed = new_controller(self.seed)
            for now_s, event, actions in journal:
                assert tuple(replayed.handle(event, now_s)) == actions
            assert replayed.replica_states() == self.controller.replica_states()
        for request_id in self.flights:
            self.controller.handle(Cancelled(request_id), self.now_s)
        assert self.controller.in_flight == 0
        for replica in self.controller._replicas:
            assert (replica.in_flight, replica.work) == (0, 0.0)


TestControllerMachine = ControllerMachine.TestCase
TestControllerMachine.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
