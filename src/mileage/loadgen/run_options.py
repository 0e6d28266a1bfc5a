"""RunOptions: how a load is offered: open or closed loop, ramp, phases, limits."""

from __future__ import annotations

from typing import Literal

import msgspec

from mileage.core.errors import ConfigError

__all__ = ["LoadMode", "Ramp", "RunOptions"]

LoadMode = Literal["open", "closed"]
"""open: calls leave when they are scheduled, whatever the answers do; closed: each of so many
lanes sends its next call when it has its last answer."""


class Ramp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load that changes evenly from one level to another, and stays there."""

    start: float
    """Where it begins. Open loop: how many times as fast as planned the plan goes (of a plan of one
    request a second, this is the rate). Closed loop: lanes."""
    end: float
    """Where it ends, in the same unit."""
    over_s: float
    """Seconds from one to the other."""

    def __post_init__(self) -> None:
        for key in ("start", "end"):
            if not 0 <= getattr(self, key) < float("inf"):
                raise ConfigError(f"ramp.{key}", getattr(self, key), "a number >= 0")
        if not self.start and not self.end:
            raise ConfigError("ramp.end", self.end, "above 0 where ramp.start is 0")
        if not 0 < self.over_s < float("inf"):
            raise ConfigError("ramp.over_s", self.over_s, "seconds above 0")


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How calls are sent. Raises ConfigError, which names the key."""

    mode: LoadMode = "open"
    """open: on the plan's schedule; closed: each lane waits for its answer."""
    concurrency: int | None = None
    """Lanes of a closed loop; with a ramp it is the ramp that says."""
    think_s: float = 0.0
    """Closed loop: seconds between an answer and the lane's next call."""
    ramp: Ramp | None = None
    """A load that grows or falls; None: as planned."""
    warmup_s: float = 0.0
    """Calls scheduled before this are sent and recorded, and count in no figure."""
    duration_s: float | None = None
    """Seconds of the measured window, after the warm-up; nothing is scheduled at its end or later.
    None: the whole plan is sent, and the window ends with the last answer."""
    drain_s: float = 60.0
    """Seconds that answers have after the last call was due; then they are given up."""
    connections_max: int = 16_384
    """To each target, where the system allows as many open files; a call that finds all in use is
    `unsent`."""
    connect_timeout_s: float = 10.0
    """Seconds to make a connection."""
    response_timeout_s: float = 600.0
    """Seconds of silence after which an answer is given up."""
    silence_max_s: float = 600.0
    """Seconds without a byte from any target, while calls wait for one, after which the run ends: a
    plan without a window would else last for a timeout per call."""
    retries: int = 0
    """How often a call is sent again that failed (connect, broken, rejected, server_error) before
    any of its tokens came. A retry counts from the same scheduled start."""
    retry_pause_s: float = 0.1
    """Before the first retry; twice as long before each next one."""

    def __post_init__(self) -> None:
        if self.mode == "closed" and self.concurrency is None and self.ramp is None:
            raise ConfigError("concurrency", None, "a number of lanes, or a ramp: a closed loop")
        if self.mode == "open" and self.concurrency is not None:
            raise ConfigError("concurrency", self.concurrency, 'mode = "closed"')
        if self.mode == "open" and self.think_s:
            raise ConfigError("think_s", self.think_s, 'mode = "closed"')
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError("concurrency", self.concurrency, "an integer >= 1")
        if self.ramp is not None and self.concurrency is not None:
            raise ConfigError("concurrency", self.concurrency, "none beside a ramp of lanes")
        if self.connections_max < 1:
            raise ConfigError("connections_max", self.connections_max, "an integer >= 1")
        if self.retries < 0:
            raise ConfigError("retries", self.retries, "an integer >= 0")
        for key in ("think_s", "warmup_s", "drain_s", "retry_pause_s"):
            self._require(key, getattr(self, key) >= 0, "seconds >= 0")
        for key in ("connect_timeout_s", "response_timeout_s", "silence_max_s"):
            self._require(key, getattr(self, key) > 0, "seconds above 0")
        if self.duration_s is not None:
            self._require("duration_s", self.duration_s > 0, "seconds above 0")

    def _require(self, key: str, holds: bool, expected: str) -> None:
        value: float = getattr(self, key)
        if not (holds and value < float("inf")):
            raise ConfigError(key, value, expected)
