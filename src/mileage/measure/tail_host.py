"""HostSample and Pause: what was seen of processes and their host, and when they stood still."""

from __future__ import annotations

import msgspec

from mileage.measure.tail_stage import Cause, Role

__all__ = ["CpuTimes", "HostSample", "Pause", "PressureTotals", "ProcessTotals", "SoftnetTotals"]


class ProcessTotals(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One process at one moment: totals since it began. None: the kernel does not tell."""

    role: Role
    pid: int
    stopped: bool
    """State T or t: a signal or a tracer holds it."""
    run_s: float | None = None
    """CPU time of the threads that `wait_s` has."""
    wait_s: dict[int, float] = {}
    """By thread that was at work of late: time spent ready to run without a CPU. The kernel adds a
    wait when it ends. Of a process whose main thread does the work it is that thread's alone."""
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    blocked_s: float | None = None
    """Time that its main thread waited for the disk; only with the kernel's delay accounting."""
    cpu: int | None = None
    """The CPU that its main thread ran on last."""


class PressureTotals(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Time in which tasks of the host waited for a resource (PSI). None: the kernel does not tell.

    Of the CPU it is the time in which some task waited; of memory and disk that in which all tasks
    that had something to do waited, so that it cannot be others' alone.
    """

    cpu_s: float | None = None
    memory_s: float | None = None
    io_s: float | None = None


class SoftnetTotals(msgspec.Struct, frozen=True, gc=False):
    """Packets of the host that were dropped, and rounds of receiving that ran out of time."""

    dropped: int
    squeezed: int


class CpuTimes(msgspec.Struct, frozen=True, gc=False):
    """What one CPU spent on soft interrupts, and what the hypervisor took of it."""

    softirq_s: float
    steal_s: float


class HostSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that is read at one moment. `at_s` is seconds since the run began."""

    at_s: float
    processes: tuple[ProcessTotals, ...] = ()
    pressure: PressureTotals | None = None
    softnet: SoftnetTotals | None = None
    """This and the two below are of some samples only."""
    net_rx_softirqs: int | None = None
    cpus: tuple[CpuTimes, ...] = ()


class Pause(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """For `busy_s` within `start_s`..`end_s` a cause held a process; where they are equal, exactly.

    Seconds since the run began.
    """

    cause: Cause
    role: Role
    start_s: float
    end_s: float
    busy_s: float
    pid: int | None = None
    detail: str = ""
    """More about it, for people."""
