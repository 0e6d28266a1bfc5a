"""Scaling: which replicas of a simulated fleet are there, and since when."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.sim.engine import Engine

__all__ = [
    "DRAINING",
    "OFF",
    "STARTING",
    "UP",
    "FleetView",
    "Scaler",
    "Scaling",
    "ScalingConfig",
    "fleet_view",
]

OFF: Final = 0
STARTING: Final = 1
UP: Final = 2
DRAINING: Final = 3
"""It gets no request any more, and is off when those that it has have ended."""


class ScalingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a fleet grows and shrinks, between none and all of its replicas."""

    start_s: float = 60.0
    """Time from the request for a replica to its first view: machine, image, weights, graphs."""
    schedule: tuple[tuple[float, int], ...] = ()
    """Pairs of a time in seconds since the first request and the replicas that are wanted from then
    on. The latest pair before the first request holds at once; without one all are there."""
    interval_s: float = 10.0
    """Time between two questions to a scaling function, where there is one."""

    def __post_init__(self) -> None:
        require_range("sim.scaling.start_s", self.start_s, 0.0, 86_400.0)
        require_range("sim.scaling.interval_s", self.interval_s, 0.1, 86_400.0)
        times = [at_s for at_s, _ in self.schedule]
        if times != sorted(times) or not all(math.isfinite(at_s) for at_s in times):
            raise ConfigError("sim.scaling.schedule", times, "times that never decrease")
        for _, replicas in self.schedule:
            require_range("sim.scaling.schedule", replicas, 0, 1_000_000)


class FleetView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a scaling function is told."""

    now_s: float
    """Since the first request."""
    up: int
    starting: int
    draining: int
    replicas_max: int
    running: int
    waiting: int
    """Requests in the engines of all replicas."""
    held: int
    """Requests that the controller holds back."""
    kv_usage_ratio: float
    """Mean over the replicas that are up; 0 without any."""


Scaler: TypeAlias = Callable[[FleetView], int]
"""How many replicas are wanted now; a pure function of what it is told, if runs are to repeat."""


def fleet_view(
    engines: Sequence[tuple[Sequence[Engine], int]], now_s: float, start_s: float, held: int
) -> FleetView:
    """What a scaling function is told of replicas: of the engines of each, and its state."""
    states = [state for _, state in engines]
    usage = [
        each.blocks_used(now_s) / each.pool.blocks
        for members, state in engines
        for each in members
        if state == UP
    ]
    every = [each for members, _ in engines for each in members]
    return FleetView(
        now_s=now_s - start_s,
        up=states.count(UP),
        starting=states.count(STARTING),
        draining=states.count(DRAINING),
        replicas_max=len(states),
        running=sum(len(engine.running) for engine in every),
        waiting=sum(engine.queued for engine in every),
        held=held,
        kv_usage_ratio=sum(usage) / len(usage) if usage else 0.0,
    )


class Scaling:
    """The state of each replica. Wanted are always the first ones; the last ones go first, and of
    those that are still draining or starting before any that is up."""

    __slots__ = ("_on_s", "_since_s", "config", "states")

    def __init__(self, config: ScalingConfig, replicas: int) -> None:
        self.config = config
        wanted = replicas
        for at_s, count in config.schedule:
            if at_s <= 0.0:
                wanted = count
        self._check(replicas)
        self.states = [UP if index < wanted else OFF for index in range(replicas)]
        self._since_s = [0.0] * replicas
        self._on_s = [0.0] * replicas

    def begin(self, now_s: float) -> None:
        """Those that are there have been asked for now."""
        self._since_s = [now_s] * len(self.states)

    def _check(self, replicas: int) -> None:
        for _, count in self.config.schedule:
            if count > replicas:
                expected = f"at most {replicas}, as many as the fleet has"
                raise ConfigError("sim.scaling.schedule", count, expected)

    def want(self, count: int, now_s: float) -> list[int]:
        """So many are to be there. The indices of those whose state has changed."""
        states = self.states
        there = [i for i, state in enumerate(states) if state in (STARTING, UP)]
        more = min(count, len(states)) - len(there)
        changed: list[int] = []
        if more > 0:
            # One that still drains is there at once.
            spare = [i for i, state in enumerate(states) if state in (DRAINING, OFF)]
            spare.sort(key=lambda i: (states[i] == OFF, i))
            for index in spare[:more]:
                if states[index] == OFF:
                    self._since_s[index] = now_s
                    states[index] = STARTING
                else:
                    states[index] = UP
                changed.append(index)
        elif more < 0:
            there.sort(key=lambda i: (states[i] == STARTING, i))
            for index in reversed(there[more:]):
                if states[index] == STARTING:
                    self.off(index, now_s)
                else:
                    states[index] = DRAINING
                changed.append(index)
        return changed

    def off(self, index: int, now_s: float) -> None:
        """The replica has ended its last request."""
        self.states[index] = OFF
        self._on_s[index] += now_s - self._since_s[index]

    def on_s(self, now_s: float) -> list[float]:
        """Seconds that each replica was there so far: from the request for it to its end."""
        return [
            total_s + (now_s - since_s if state != OFF else 0.0)
            for total_s, since_s, state in zip(self._on_s, self._since_s, self.states, strict=True)
        ]
