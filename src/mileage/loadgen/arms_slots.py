"""Slots of an A/B run: which arm gets which stretch of time, and what it is sent there."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Literal

from msgspec.structs import replace

from mileage.core.errors import ConfigError
from mileage.loadgen.plan import planned_calls
from mileage.loadgen.plan_options import PlanOptions, PlanTally
from mileage.loadgen.planned_call import PlannedCall
from mileage.workload.trace_request import TraceRequest

__all__ = ["Arm", "ArmCalls", "Mode", "Portions", "both", "orders"]

Arm = Literal["a", "b"]
Mode = Literal["interleaved", "mirrored"]
"""interleaved: the arms take turns, and each gets the same requests; mirrored: both at once, and
each request goes to both."""

_OTHER_SEED = 0xB0B
"""What the seed of arm b's text differs by, where both arms share a cache."""


def orders(seed: int) -> Iterator[tuple[Arm, Arm]]:
    """The order of the arms in each pair of slots, without an end.

    Of each two pairs one begins with a and one with b, and which does is drawn. So what drifts in
    the course of a run weighs on both arms alike, and what comes at some period meets neither arm
    each time.
    """
    rng = Random(f"orders of arms {seed}")  # noqa: S311 -- no secret
    while True:
        if rng.random() < 0.5:
            yield from (("a", "b"), ("b", "a"))
        else:
            yield from (("b", "a"), ("a", "b"))


class Portions:
    """A workload cut into stretches of `slot_s` seconds of its own time, each from 0 on.

    One that ends begins anew; `rounds` counts how often it did. With `count`, where clients have no
    schedule, a stretch is that many requests.
    """

    def __init__(
        self, workload: Iterable[TraceRequest], *, slot_s: float, count: int | None = None
    ) -> None:
        self._workload, self._slot_s, self._count = workload, slot_s, count
        self._requests, self._next = iter(workload), None
        self._begin_s = 0.0
        self.rounds = 0

    _next: TraceRequest | None

    def take(self) -> list[TraceRequest]:
        """The next stretch; empty where the workload pauses for so long.

        Raises ConfigError for a workload without any request, and whatever reading it raises.
        """
        taken: list[TraceRequest] = []
        is_fresh = False
        while True:
            request, self._next = self._next or next(self._requests, None), None
            if request is None:
                if is_fresh:
                    raise ConfigError("workload", 0, "at least one request")
                self._requests, self._begin_s = iter(self._workload), 0.0
                self.rounds += 1
                is_fresh = True
                if taken:
                    return taken
                continue
            is_fresh = False
            end_s = self._begin_s + self._slot_s
            full = request.arrived_s >= end_s if self._count is None else len(taken) >= self._count
            if full:
                self._next = request
                self._begin_s = end_s if self._count is None else request.arrived_s
                return taken
            taken.append(replace(request, arrived_s=max(0.0, request.arrived_s - self._begin_s)))


class ArmCalls:
    """The calls of one arm, slot after slot, out of one plan: no text comes twice in it.

    Where both arms `share_cache`, the other arm's text is another of the same lengths, with the
    same prefixes in common among itself: else the arm that comes second finds what the first has
    left there.
    """

    def __init__(
        self, arm: Arm, options: PlanOptions, *, share_cache: bool, tally: PlanTally | None = None
    ) -> None:
        self._arm = arm
        if share_cache and arm == "b":
            options = replace(options, seed=options.seed ^ _OTHER_SEED)
        self._due: deque[TraceRequest] = deque()
        self._calls = planned_calls(self._feed(), options, tally)

    def of(
        self, portion: Sequence[TraceRequest], *, pair: int, target: int = 0
    ) -> list[PlannedCall]:
        """The calls for the requests of a slot. Equal places in the plan have equal indexes."""
        self._due.extend(portion)
        calls = itertools.islice(self._calls, len(portion))
        return [replace(call, arm=self._arm, block=pair, target=target) for call in calls]

    def _feed(self) -> Iterator[TraceRequest]:
        while self._due:
            yield self._due.popleft()


def both(a: Sequence[PlannedCall], b: Sequence[PlannedCall], seed: int) -> list[PlannedCall]:
    """The calls of both arms at the same times; which of the two leaves first is drawn."""
    rng = Random(f"which leaves first {seed}")  # noqa: S311 -- no secret
    merged: list[PlannedCall] = []
    for one, other in zip(a, b, strict=True):
        merged += (one, other) if rng.random() < 0.5 else (other, one)
    return merged
