"""How an engine is supervised: waits, restarts, what is done before it takes traffic."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range, require_up_to
from mileage.engines.launch.warm_up import WarmShape

__all__ = ["LaunchSettings", "MpsSettings"]


class MpsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """See `mps.start_mps`."""

    active_thread_percentage: int | None = None
    pipe_directory: str | None = None
    log_directory: str | None = None


class LaunchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a launch, by the names of the command line's."""

    ready_timeout_s: float = 1800.0
    """From the process's start to the first token; a start that takes longer has failed. The
    warm-up that follows has the bounds of its requests."""
    warm_timeout_s: float = 300.0
    """Of each request of the warm-up."""
    drain_s: float = 60.0
    """Between SIGTERM and the end of everything that is left."""
    restarts: int = 3
    """Failures in a row after which it is not started again."""
    backoff_s: float = 1.0
    """Pause before the first restart; doubles each time, up to `backoff_max_s`."""
    backoff_max_s: float = 60.0
    stable_s: float = 600.0
    """An engine that was ready for so long has not failed in a row."""
    warm: tuple[WarmShape, ...] | None = None
    """None: as `default_shapes` has it."""
    step_tokens: int | None = None
    """The engine's tokens per step; None: as its log says."""
    active_max: int | None = None
    """Requests that the engine runs at once; None: as its log says."""
    preload: str | None = None
    """A model, or its files, to be read into the page cache."""
    preload_reserve_bytes: int = 4 << 30
    mps: MpsSettings | None = None

    def __post_init__(self) -> None:
        require_positive("--ready-timeout-s", self.ready_timeout_s)
        require_positive("--warm-timeout-s", self.warm_timeout_s)
        require_at_least("--drain-s", self.drain_s, 0.0)
        require_range("--restarts", self.restarts, 0, 1_000_000)
        require_up_to("--restart-backoff-s", self.backoff_s, self.backoff_max_s)
        require_at_least("--stable-s", self.stable_s, 0.0)
        require_at_least("--preload-reserve-gib", self.preload_reserve_bytes / 2**30, 0.0)
