"""What happens to an engine that is launched, each as a value that can be shown or written."""

from __future__ import annotations

import msgspec

from mileage.engines.launch.preload import Preloaded
from mileage.engines.launch.start_watch import StartTimes
from mileage.engines.launch.warm_up import WarmTook

__all__ = [
    "Ended",
    "LaunchEvent",
    "Preload",
    "Ready",
    "Restarting",
    "Started",
    "Stopping",
    "Up",
    "Warmed",
]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=str.lower):
    """`after_s`: since the process of this start was started."""

    after_s: float


class Started(_Event, frozen=True, kw_only=True):
    """An engine's process was started, for the `attempt`th time."""

    attempt: int
    pid: int
    url: str
    command: tuple[str, ...]


class Preload(_Event, frozen=True, kw_only=True):
    """Weights were read into the page cache, or not."""

    result: Preloaded


class Up(_Event, frozen=True, kw_only=True):
    """It answers that it is healthy; it has given no token yet."""


class Warmed(_Event, frozen=True, kw_only=True):
    """A shape of requests was sent twice."""

    took: WarmTook


class Ready(_Event, frozen=True, kw_only=True):
    """It has given tokens and is warm."""

    model: str
    times: StartTimes


class Ended(_Event, frozen=True, kw_only=True):
    """The process is gone. `asked`: because it was to end. `why`: a known cause, in words."""

    exit_code: int
    ready: bool
    asked: bool
    cause: str | None
    why: str | None
    tail: tuple[str, ...]


class Restarting(_Event, frozen=True, kw_only=True):
    """It will be started again after a pause."""

    in_s: float
    restart: int
    restarts_max: int


class Stopping(_Event, frozen=True, kw_only=True):
    """It was asked to end, and gets so long."""

    drain_s: float


LaunchEvent = Started | Preload | Up | Warmed | Ready | Ended | Restarting | Stopping
