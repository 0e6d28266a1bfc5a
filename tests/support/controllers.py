"""A controller for tests, and short ways to tell it what happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, Dispatch, SetLimit
from mileage.core.events import (
    Arrived,
    Cancelled,
    Failed,
    FailureKind,
    ReplicaUp,
)
from mileage.core.request import Request
from mileage.policy.breaker import BreakerConfig
from mileage.policy.routing import RoutingConfig

__all__ = ["arrive", "controller", "fail", "in_flight", "open_breaker", "request", "states"]


def controller(
    *up: str,
    known: Sequence[str] = ("a", "b", "c"),
    failures_max: int = 2,
    attempts_max: int = 3,
    lacks: Mapping[str, Any] = MappingProxyType({}),
    in_flight_max: int = 100_000,
    **sections: Any,
) -> Controller:
    made = Controller(
        known,
        config=ControlConfig(
            routing=RoutingConfig(attempts_max=attempts_max),
            breaker=BreakerConfig(failures_max=failures_max, open_s=1.0, open_max_s=4.0),
            **sections,
        ),
        random=Random(1),
        lacks=lacks,
        in_flight_max=in_flight_max,
    )
    for name in up:
        actions = made.handle(ReplicaUp(name, ("llama",)), 0.0)
        assert all(isinstance(action, SetLimit) for action in actions)
    return made


def request(request_id: int, model: str = "llama", **fields: Any) -> Request:
    values = {
        "tenant": "acme",
        "endpoint": "chat",
        "stream": True,
        "arrived_s": 0.0,
        "prompt_tokens_estimate": 100,
        **fields,
    }
    return Request(id=request_id, model=model, **values)


def arrive(c: Controller, request_id: int, now_s: float = 0.0, **fields: Any) -> str:
    """Send a request; the replica it goes to."""
    actions = c.handle(Arrived(request(request_id, **fields)), now_s)
    (action,) = [action for action in actions if not isinstance(action, SetLimit)]
    assert isinstance(action, Dispatch)
    assert action.request_id == request_id
    return action.replica


def fail(
    c: Controller,
    request_id: int,
    replica: str,
    kind: FailureKind = "connect",
    *,
    retryable: bool = True,
    now_s: float = 0.0,
) -> Sequence[Action]:
    return c.handle(Failed(request_id, replica, kind, retryable), now_s)


def open_breaker(c: Controller, replica: str, now_s: float, first_id: int = 900) -> None:
    """Two failures that no client waits for, of requests that went to `replica`."""
    failed, request_id = 0, first_id
    while failed < 2:
        request_id += 1
        went_to = arrive(c, request_id, now_s)
        if went_to == replica:
            fail(c, request_id, replica, retryable=False, now_s=now_s)
            failed += 1
        else:
            c.handle(Cancelled(request_id), now_s)


def states(c: Controller) -> dict[str, str]:
    return {state.name: state.state for state in c.replica_states()}


def in_flight(c: Controller) -> dict[str, int]:
    return {state.name: state.in_flight for state in c.replica_states() if state.in_flight}
