"""ModelSeat: one replica that can sleep: what it does now, since when, and what that has cost."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from mileage.core.model_loader import ModelLoader
from mileage.policy.residency.idle import IdleGaps, break_even_s
from mileage.policy.residency.idle_config import IdleConfig
from mileage.policy.residency.room import Resident
from mileage.policy.residency.warm_window import parse_window

__all__ = ["ModelSeat", "ModelState", "ModelStatus"]

ModelState: TypeAlias = Literal["loaded", "asleep", "loading", "unloading"]
_LOAD_ASSUMED_S = 5.0
_LOAD_GAIN = 0.3


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica that can sleep, for people. `since_s` is how long it is in its state. Totals are
    since the gateway's start; `saved_s` is how long it slept while the gateway ran."""

    replica: str
    models: tuple[str, ...]
    state: ModelState
    since_s: float
    waiting: int = 0
    """Requests that are held until it is loaded."""
    memory_bytes: int | None = None
    idle_s: float | None = None
    """Since its last request; None while it has any."""
    sleeps_in_s: float | None = None
    """When it is unloaded if nobody uses it; None: it stays, or is not loaded."""
    load_s: float | None = None
    """What the last loads took."""
    loads_total: int = 0
    load_failures_total: int = 0
    unloads_total: int = 0
    saved_s: float = 0.0
    load_seconds_total: float = 0.0
    reason: str | None = None
    """Why it is not loaded."""


class ModelSeat:
    """State of one replica; `ModelDesk` decides. Times are monotonic seconds."""

    def __init__(self, replica: str, loader: ModelLoader, config: IdleConfig, now_s: float) -> None:
        self.replica, self.loader = replica, loader
        self.models: tuple[str, ...] = ()
        self.state: ModelState = "asleep"
        self.since_s = now_s
        self.reason: str | None = "not needed yet"
        self.gaps = IdleGaps()
        self.load_s: float | None = None
        self.loads_total = self.load_failures_total = self.unloads_total = 0
        self.load_seconds_total = 0.0
        self.failures_in_a_row = 0
        self.retry_s = -math.inf
        """Before this no load is tried."""
        self.wanted = False
        """Requests wait for it."""
        self.enabled = True
        """It is to be used."""
        self.told = ""
        """Why the workers are not to use it while it is unloaded."""
        self.task: asyncio.Task[None] | None = None
        """What loads or unloads it."""
        self.idle_since_s: float | None = None
        self._keep_s = math.inf
        self._asleep_s = 0.0
        self.configure(config)

    def configure(self, config: IdleConfig) -> None:
        """When it sleeps from now on."""
        self.config = config.of(self.models[0]) if self.models else config.of(self.replica)
        self.windows = [parse_window("idle.keep_warm", text) for text in self.config.keep_warm]
        self._keep_s = self._keep()

    def become(self, state: ModelState, now_s: float, reason: str | None = None) -> None:
        """It is this from now on."""
        if self.state == "asleep":
            self._asleep_s += now_s - self.since_s
        self.state, self.since_s, self.reason = state, now_s, reason

    @property
    def load_cost_s(self) -> float:
        """What a load costs, in seconds that it is kept for nothing."""
        load_s = _LOAD_ASSUMED_S if self.load_s is None else self.load_s
        return break_even_s(load_s, self.config.wait_cost_ratio)

    def loaded(self, took_s: float, now_s: float) -> None:
        """A load has come to an end, well."""
        known = took_s if self.load_s is None else self.load_s
        self.load_s = known + _LOAD_GAIN * (took_s - known)
        self.loads_total += 1
        self.load_seconds_total += took_s
        self.failures_in_a_row = 0
        self.become("loaded", now_s)
        self.rests(now_s)

    def used(self, now_s: float) -> None:
        """Requests run there, or wait for it."""
        if self.idle_since_s is not None:
            self.gaps.ended(now_s - self.idle_since_s, self._policy_keep_s(), self.load_cost_s)
            self.idle_since_s = None

    def rests(self, now_s: float) -> None:
        """Nothing runs there any more, nor waits."""
        if self.idle_since_s is None:
            self.idle_since_s = now_s
            self._keep_s = self._keep()

    def _keep(self) -> float:
        policy = self.config.policy
        if policy == "never":
            return math.inf
        return self.config.fixed_s if policy == "fixed" else self.gaps.keep_s(self.load_cost_s)

    def _policy_keep_s(self) -> float:
        """What the account of pauses is told: of others' decisions it learns nothing."""
        return self._keep_s if self.config.policy == "break_even" else self.load_cost_s

    def is_new(self, since_s: float) -> bool:
        """It was loaded after that: its health may not be known yet."""
        return self.state == "loaded" and self.since_s > since_s

    def warm(self, local: datetime) -> bool:
        """These are hours in which it stays loaded."""
        return any(window.covers(local) for window in self.windows)

    def may_go_s(self) -> float:
        """Since when it may be unloaded for others, or when asked; inf: it is in use."""
        if self.state != "loaded" or self.idle_since_s is None or self.wanted:
            return math.inf
        return max(self.idle_since_s, self.since_s + self.config.resident_min_s)

    def due_s(self) -> float:
        """When it is to be unloaded because nobody uses it; inf: never."""
        may_go_s = self.may_go_s()
        if may_go_s == math.inf or self.idle_since_s is None:
            return math.inf
        return max(may_go_s, self.idle_since_s + self._keep_s)

    def resident(self, now_s: float) -> Resident | None:
        """It as one that may make room; None: it takes none of the memory that is shared."""
        memory_bytes = self.loader.memory_bytes()
        if memory_bytes is None:
            return None
        idle_s = 0.0 if self.idle_since_s is None else now_s - self.idle_since_s
        return Resident(
            name=self.replica,
            memory_bytes=memory_bytes,
            idle_s=idle_s,
            load_cost_s=self.load_cost_s,
            return_s=self.gaps.return_s(idle_s),
        )

    def status(self, now_s: float, *, waiting: int, warm: bool) -> ModelStatus:
        """It for people."""
        asleep_s = self._asleep_s + (now_s - self.since_s if self.state == "asleep" else 0.0)
        due_s = math.inf if warm else self.due_s()
        idle_s = None if self.idle_since_s is None else now_s - self.idle_since_s
        return ModelStatus(
            replica=self.replica,
            models=self.models,
            state=self.state,
            since_s=now_s - self.since_s,
            waiting=waiting,
            memory_bytes=self.loader.memory_bytes(),
            idle_s=idle_s,
            sleeps_in_s=None if due_s == math.inf else max(0.0, due_s - now_s),
            load_s=self.load_s,
            loads_total=self.loads_total,
            load_failures_total=self.load_failures_total,
            unloads_total=self.unloads_total,
            saved_s=asleep_s,
            load_seconds_total=self.load_seconds_total,
            reason=self.reason,
        )
