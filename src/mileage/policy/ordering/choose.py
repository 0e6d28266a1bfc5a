"""Which policy orders the prompts: from its name to an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from mileage.policy.ordering.deadline import DeadlineOrdering
from mileage.policy.ordering.fcfs import FcfsOrdering
from mileage.policy.ordering.policy import OrderingPolicy
from mileage.policy.ordering.shortest import ShortestConfig, ShortestOrdering

__all__ = ["ORDERING_POLICIES", "OrderingPolicyName", "make_ordering"]

OrderingPolicyName: TypeAlias = Literal["fcfs", "deadline", "shortest"]

ORDERING_POLICIES: Mapping[str, Callable[[ShortestConfig], OrderingPolicy]] = {
    "fcfs": lambda _: FcfsOrdering(),
    "deadline": lambda _: DeadlineOrdering(),
    "shortest": ShortestOrdering,
}


def make_ordering(
    name: OrderingPolicyName, shortest: ShortestConfig | None = None
) -> OrderingPolicy:
    """The policy of that name."""
    return ORDERING_POLICIES[name](shortest or ShortestConfig())
