"""HostMoment and LoadMoment: what the machine beside the GPUs, and the engine, were at."""

from __future__ import annotations

import msgspec

__all__ = ["HostMoment", "LoadMoment"]


class HostMoment(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The host since the look before it, `at_s` on the samples' clock. None: it does not tell.

    Ratios of time are 0..1.
    """

    at_s: float
    cpu_ratio: float | None = None
    """Of all cores."""
    core_max_ratio: float | None = None
    """Of the busiest core."""
    engine_cores: float | None = None
    """CPU seconds per second of the engine's processes."""
    thread_max_ratio: float | None = None
    """Of a core, by the thread of engine or gateway that used most."""
    thread_name: str = ""
    """Which one that is."""
    wait_max_ratio: float | None = None
    """Time that one of these threads was ready to run and had no core: the one that waited most."""
    switches_per_s: float | None = None
    """Context switches of the host."""
    throttled_ratio: float | None = None
    """Time in periods (of 100 ms, mostly) in which a control group of the engine used up its CPU
    quota, and stood still until the next."""
    cpu_quota_ratio: float | None = None
    """Of its CPU quota that the group used; None also where it has none."""
    memory_limit_ratio: float | None = None
    """Of its memory limit that the group uses; None also where it has none."""
    pressure_cpu_ratio: float | None = None
    """Time in which some task of the host waited for a core (PSI)."""
    pressure_memory_ratio: float | None = None
    """Time in which all tasks with something to do waited for memory; so for the disk."""
    pressure_io_ratio: float | None = None


class LoadMoment(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The requests at the engine, and their latency since the look before it."""

    at_s: float
    running: int | None = None
    waiting: int | None = None
    itl_s: float | None = None
    """Mean gap between tokens, of what came since the look before."""

    @property
    def has_work(self) -> bool | None:
        """Whether a request ran or waited; None where neither is known."""
        known = [n for n in (self.running, self.waiting) if n is not None]
        if any(known):
            return True
        return False if len(known) == 2 else None
