"""CPU time of processes to the nanosecond: all of their threads, those that have ended too."""

from __future__ import annotations

import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

import psutil

__all__ = ["process_cpu_s", "thread_cpu_s", "threads_of_niceness", "tree_cpu_s"]

_SCHEDULER_CLOCK = 2
_NICE = 16
"""Place in /proc/PID/task/TID/stat behind the name."""


def process_cpu_s(pid: int) -> float:
    """Of one process, without its children; raises OSError where it is gone."""
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)  # see clock_getcpuclockid(3)


def tree_cpu_s(root: int, *, apart: Container[int] = ()) -> float:
    """Of a process and its children, all levels, but for those in `apart` and what is below them;
    of children that have ended to the hundredth of a second."""
    if root in apart:
        return 0.0
    total = 0.0
    with suppress(psutil.NoSuchProcess, OSError):
        process = psutil.Process(root)
        ended = process.cpu_times()
        total += process_cpu_s(root) + ended.children_user + ended.children_system
        total += sum(tree_cpu_s(child.pid, apart=apart) for child in process.children())
    return total


def threads_of_niceness(pid: int, niceness: int) -> list[int]:
    """The threads of a process that are at this niceness."""
    found = []
    for directory in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            if int(fields[_NICE]) == niceness:
                found.append(int(directory.name))
    return found


def thread_cpu_s(pid: int, tid: int) -> float:
    """Of one thread; raises OSError where it is gone."""
    return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0]) / 1e9
