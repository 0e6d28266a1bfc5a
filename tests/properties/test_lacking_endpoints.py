"""Endpoints that replicas lack: a fleet decides as if those that lack it were not there."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import hypothesis.strategies as st
from hypothesis import given

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, Dispatch, Reject
from mileage.core.events import Arrived, Event, Failed, FailureKind, Finished, ReplicaUp
from mileage.core.request import Endpoint, Request
from mileage.policy.breaker import BreakerConfig

NAMES = ("a", "b", "c", "d", "e")
ENDPOINTS: tuple[Endpoint, ...] = ("chat", "embeddings", "responses")
KINDS: tuple[FailureKind, ...] = ("connect", "timeout", "broken", "status", "busy")
requests = st.lists(
    st.tuples(
        st.integers(0, 3000),
        st.none() | st.integers(0, 2**64 - 1),
        st.lists(st.sampled_from(KINDS), max_size=4),
        st.floats(0.0, 2.0),
    ),
    max_size=25,
)


def fleet(names: Sequence[str], seed: int, lacks: dict[str, set[Endpoint]]) -> Controller:
    controller = Controller(
        names,
        config=ControlConfig(breaker=BreakerConfig(failures_max=3)),
        random=Random(seed),
        lacks=lacks,
    )
    for name in names:
        controller.handle(ReplicaUp(name, ("llama",)), 0.0)
    return controller


@given(
    st.fixed_dictionaries({name: st.sets(st.sampled_from(ENDPOINTS)) for name in NAMES}),
    st.sampled_from(ENDPOINTS),
    requests,
    st.integers(0, 100),
)
def test_those_that_lack_the_endpoint_might_as_well_not_be_there(
    lacks: dict[str, set[Endpoint]],
    endpoint: Endpoint,
    arrivals: list[tuple[int, int | None, list[FailureKind], float]],
    seed: int,
) -> None:
    able = [name for name in NAMES if endpoint not in lacks[name]]
    whole, oracle = fleet(NAMES, seed, lacks), fleet(able, seed, {})
    now_s = 0.0

    def tell(event: Event) -> Sequence[Action]:
        actions = whole.handle(event, now_s)
        if able:
            assert actions == oracle.handle(event, now_s)
        return actions

    for number, (prompt_tokens, prefix_key, failures, passed_s) in enumerate(arrivals):
        now_s += passed_s
        request = Request(
            id=number,
            tenant="acme",
            model="llama",
            endpoint=endpoint,
            stream=True,
            arrived_s=now_s,
            prompt_tokens_estimate=prompt_tokens,
            prefix_key=prefix_key,
        )
        actions = tell(Arrived(request))
        if not able:
            assert actions == (Reject(number, "endpoint_not_supported"),)
        for kind in failures:
            if actions and isinstance(actions[0], Dispatch):
                actions = tell(Failed(number, actions[0].replica, kind, True))
        if actions and isinstance(actions[0], Dispatch) and number % 3:
            tell(Finished(number, prompt_tokens, None, 20))
