"""The governed controller under any events: nothing is lost, and replay is identical."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from random import Random
from typing import Any, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.control.config import ControlConfig, GovernorConfig, LimitPolicyName
from mileage.control.controller import Controller
from mileage.core.actions import (
    Action,
    AskBudget,
    Dispatch,
    Hold,
    Join,
    Reject,
    ReturnBudget,
    SetLimit,
    WakeAt,
)
from mileage.core.events import (
    Arrived,
    BudgetGranted,
    BudgetRecalled,
    Cancelled,
    ConfigChanged,
    Event,
    Failed,
    Finished,
    FirstToken,
    Observed,
    ReplicaDown,
    ReplicaUp,
    ShareChanged,
    Woke,
)
from mileage.core.replica import ReplicaView
from mileage.core.request import Request
from mileage.core.slo import SloConfig
from mileage.policy.breaker import BreakerConfig
from mileage.policy.limits.static import StaticConfig
from mileage.policy.merging import MergingConfig
from mileage.policy.tenants import BudgetConfig, TenantLimits
from tests.support.experiments import any_experiment

NAMES = ("a", "b")
TENANTS = {
    "plain": TenantLimits(weight=3.0),
    "rated": TenantLimits(requests_per_min=60, tokens_per_min=20_000, concurrency_max=5),
    "poor": TenantLimits(
        priority="low",
        budgets=(
            BudgetConfig(amount=5000, unit="tokens", per="hour"),
            BudgetConfig(amount=100, unit="gpu_s", per="day"),
        ),
    ),
}


@dataclass
class Known:
    """What the host knows of a request that has not ended."""

    leader: int
    replica: str | None = None
    first: bool = False


class Host:
    """Performs actions as the gateway does, and checks that they make sense."""

    def __init__(self, config: ControlConfig) -> None:
        self.config = config
        self.controller = Controller(NAMES, config=config, random=Random(3))
        self.fresh = Controller(NAMES, config=config, random=Random(3))
        self.known: dict[int, Known] = {}
        self.now_s = 0.0
        self.next_id = 1
        self.asked: list[AskBudget] = []
        self.limits: dict[str, int] = {}
        self.left: set[str] = set()
        """Replicas that were not configured at some time."""

    def tell(self, event: Event) -> None:
        actions = tuple(self.controller.handle(event, self.now_s))
        assert tuple(self.fresh.handle(event, self.now_s)) == actions
        assert self.controller.failure is None, self.controller.failure
        for action in actions:
            self.perform(action)

    def perform(self, action: Action) -> None:
        if isinstance(action, Dispatch):
            known = self.known[action.request_id]
            assert known.replica is None
            assert known.leader == action.request_id
            known.replica, known.first = action.replica, False
        elif isinstance(action, Reject):
            for request_id in self.members(action.request_id):
                assert self.known[request_id].leader == action.request_id
                del self.known[request_id]
        elif isinstance(action, Join):
            assert action.leader_id in {k.leader for k in self.known.values()}
            self.known[action.request_id].leader = action.leader_id
        elif isinstance(action, Hold):
            assert self.known[action.request_id].replica is None
        elif isinstance(action, SetLimit):
            assert 1 <= action.limit <= self.config.governor.limit_max
            assert action.reason
            self.limits[action.replica] = action.limit
        elif isinstance(action, AskBudget):
            self.asked.append(action)
        else:
            assert isinstance(action, WakeAt | ReturnBudget)

    def members(self, leader: int) -> list[int]:
        return [i for i, known in self.known.items() if known.leader == leader]

    def place(self, leader: int) -> Known | None:
        """The generation: it may outlive its leader."""
        members = self.members(leader)
        return None if not members else self.generations[leader]

    @property
    def generations(self) -> dict[int, Known]:
        return {known.leader: known for known in self.known.values()}


KINDS = (
    *("arrive", "arrive", "arrive", "arrive", "first", "finish", "finish", "fail", "cancel"),
    *("time", "wake", "view", "up", "down", "grant", "deny", "recall", "reload", "share", "split"),
)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 1_000_000),
    ),
    max_size=120,
)
CONFIGS = st.builds(
    lambda policy, mode, limit, ttft, itl, queue, late: ControlConfig(
        governor=GovernorConfig(
            policy=policy,
            mode=mode,
            static=StaticConfig(limit=limit),
            limit_max=max(limit, 8),
            queue_max=queue,
            reject_late=late,
            queue_wait_max_s=5.0,
        ),
        slo=SloConfig(ttft_s=ttft, itl_s=itl),
        breaker=BreakerConfig(failures_max=2, open_s=1.0, open_max_s=4.0),
        merging=MergingConfig(batch_load_min=1, batch_items_max=3),
        tenants=TENANTS,
    ),
    st.sampled_from(get_args(LimitPolicyName)),
    st.sampled_from(["act", "act", "act", "observe", "off"]),
    st.integers(1, 4),
    st.sampled_from([None, 0.5, 3.0]),
    st.sampled_from([None, 0.05]),
    st.sampled_from([0, 2, 100]),
    st.booleans(),
)


def arrival(host: Host, number: int) -> None:
    random = Random(number)
    embedding = random.random() < 0.3
    fields: dict[str, Any] = {"merge_key": random.choice([None, None, "x", "y"])}
    if embedding:
        fields["batch_key"] = random.choice([None, "e"])
    request = Request(
        id=host.next_id,
        tenant=random.choice([*TENANTS, "stranger"]),
        model=random.choice(["m", "m", "m", "other"]),
        endpoint="embeddings" if embedding else "chat",
        stream=not embedding and random.random() < 0.7,
        arrived_s=host.now_s,
        prompt_tokens_estimate=random.choice([0, 10, 500]),
        prompt_tokens_max=random.choice([None, 2000]),
        output_tokens_max=random.choice([None, 50]),
        priority=random.choice([None, "high", "low"]),
        **fields,
    )
    host.known[request.id] = Known(request.id)
    host.next_id += 1
    host.tell(Arrived(request))


def step(host: Host, kind: str, number: int) -> None:
    random = Random(number)
    running = [i for i, k in host.known.items() if k.replica is not None and k.leader == i]
    name = random.choice(NAMES)
    if kind == "arrive":
        arrival(host, number)
    elif kind == "time":
        host.now_s += random.choice([0.001, 0.1, 0.5, 2.0, 4000.0])
    elif kind == "wake":
        host.tell(Woke())
    elif kind == "up":
        models = [("m",), ("m", "other"), ("other", "m"), ("other",), ()]
        host.tell(ReplicaUp(name, random.choice(models)))
    elif kind == "down":
        host.tell(ReplicaDown(name, "test"))
    elif kind == "view":
        host.tell(Observed(view(name, host.now_s, random)))
    elif kind in ("grant", "deny") and host.asked:
        ask = host.asked.pop(0)
        amount = ask.amount * random.choice([1, 3]) if kind == "grant" else 0
        host.tell(BudgetGranted(ask.account, 5, amount, renews_s=100.0, last=kind == "deny"))
    elif kind == "reload":
        reload(host, random)
    elif kind == "share":
        host.tell(ShareChanged(random.choice([0.1, 0.5, 1.0])))
    elif kind == "split":
        host.tell(any_experiment(NAMES, random, host.now_s))
    elif kind == "recall":
        host.tell(BudgetRecalled("poor/tokens/hour", 5))
    elif kind == "cancel" and host.known:
        leave(host, random.choice(sorted(host.known)))
    elif running:
        progress(host, kind, random.choice(running), random)


def reload(host: Host, random: Random) -> None:
    """Another mode, limit, queue, other tenants' limits, other replicas, endpoints they lack."""
    config = host.config
    governor = msgspec.structs.replace(
        config.governor,
        mode=random.choice(["act", "act", "observe", "off"]),
        static=StaticConfig(limit=random.choice([1, 3, 8])),
        queue_max=random.choice([0, 2, 100]),
    )
    changed = msgspec.structs.replace(
        config,
        governor=governor,
        tenants=random.choice([TENANTS, TENANTS, {}]),
        merging=random.choice([config.merging, MergingConfig(across_tenants=True)]),
        replicas=random.choice([None, NAMES, ("a",), ("b", "c"), ()]),
        lacks=random.choice([{}, {"a": ("embeddings",)}, {"b": ("embeddings", "chat")}]),
    )
    version = host.controller.version + 1
    host.tell(ConfigChanged(version, msgspec.json.encode(changed).decode()))


def view(name: str, now_s: float, random: Random) -> ReplicaView:
    return ReplicaView(
        replica=name,
        observed_s=now_s - random.choice([0.0, 1.0, 100.0, -5.0]),
        running=random.choice([None, 0, 3, -7, 10**9]),
        waiting=random.choice([None, 0, 5]),
        running_max=random.choice([None, 0, -1, 4]),
        kv_cache_usage_ratio=random.choice([None, 0.1, 0.99, 7.0, float("nan")]),
        kv_tokens_max=random.choice([None, 0, 10_000]),
        compute_busy_ratio=random.choice([None, 0.1, 0.99, -3.0]),
    )


def leave(host: Host, request_id: int) -> None:
    """A client leaves; its generation lives on under its leader's id while others wait."""
    known = host.known.pop(request_id)
    others = host.members(known.leader)
    if others and known.leader == request_id:
        # The test's host keeps the generation under a member that stays, marked as the leader.
        host.known[request_id] = known
        for other in others:
            leave(host, other)
        host.known.pop(request_id)
    host.tell(Cancelled(request_id))


def progress(host: Host, kind: str, leader: int, random: Random) -> None:
    known = host.known[leader]
    replica = known.replica
    assert replica is not None
    if kind == "first":
        known.first = True
        host.tell(FirstToken(leader))
    elif kind == "finish":
        for member in host.members(leader):
            del host.known[member]
        counts = random.choice([(None, None), (100, 20), (-1, -1), (10, 0)])
        gap_s = random.choice([None, 0.01, float("inf"), float("nan")])
        host.tell(Finished(leader, counts[0], None, counts[1], itl_p99_s=gap_s))
    elif kind == "fail":
        retryable = not known.first
        if retryable:
            known.replica = None
        else:
            for member in host.members(leader):
                del host.known[member]
        failure = random.choice(["connect", "timeout", "broken", "status", "busy"])
        host.tell(Failed(leader, replica, failure, retryable))  # type: ignore[arg-type]


@given(config=CONFIGS, operations=OPERATIONS)
@settings(max_examples=300, deadline=None)
def test_every_request_ends_once_and_replay_is_identical(
    config: ControlConfig, operations: list[tuple[str, int]]
) -> None:
    host = Host(config)
    host.tell(ReplicaUp("a", ("m",)))
    for kind, number in operations:
        step(host, kind, number)
        generations = {known.leader for known in host.known.values()}
        assert host.controller.in_flight == len(generations)
        states = host.controller.replica_states()
        host.left.update({*NAMES, "c"}.difference(state.name for state in states))
        # One that left and came back is another: what the old one has goes on there.
        counted = {state.name: state.in_flight for state in states if state.name not in host.left}
        running = [k.replica for k in host.known.values() if k.replica in counted]
        assert len(running) == sum(counted.values())
        if number % 7 == 0:
            host.fresh = pickle.loads(pickle.dumps(host.controller))
    host.now_s += 100.0
    host.tell(Woke())
    assert all(host.known[known.leader].replica is not None for known in host.known.values())
    for request_id in sorted(host.known):
        if request_id in host.known:
            leave(host, request_id)
    assert host.controller.in_flight == 0
    assert host.controller.governor.held == 0
    assert all(not state.in_flight for state in host.controller.replica_states())
    assert nothing_is_left(host.controller)


def nothing_is_left(controller: Controller) -> bool:
    """Of requests that have ended the controller keeps nothing."""
    dispatcher = controller._dispatcher
    intake, merges, batches = dispatcher.intake, dispatcher.merges, dispatcher.batches
    return not (
        dispatcher._unfunded
        or merges._leaders
        or merges._keys
        or merges._members
        or merges._joined
        or batches._leaders
        or batches._filled
        or intake._claims
        or intake._budgets._reservations
        or any(intake._gate.in_flight(tenant) for tenant in [*TENANTS, "stranger"])
    )
