"""Files of /proc that tell of processes and their host: what each says, from its text."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from mileage.measure.tail_host import CpuTimes, SoftnetTotals

__all__ = [
    "KeptFile",
    "StatLine",
    "cpu_times",
    "net_rx_softirqs",
    "pressure_s",
    "schedstat",
    "softnet",
    "stat_line",
    "switches",
]

_READ_BYTES = 65536
_STATE, _MINOR, _MAJOR, _CPU, _BLOCKED = 0, 7, 9, 36, 39
"""Places in /proc/PID/stat behind the name, which may have spaces and brackets in it."""
_SOFTIRQ, _STEAL = 7, 8
"""Places in a line of /proc/stat."""


class KeptFile:
    """A file of /proc that is read again and again: it stays open, which costs a third."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where it cannot be opened."""
        self._fd: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> str:
        """Its text now. Raises OSError; ESRCH where its process is gone."""
        if self._fd is None:
            raise OSError("closed")
        return os.pread(self._fd, _READ_BYTES, 0).decode("ascii", "replace")

    def close(self) -> None:
        """Close it; twice is fine."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class StatLine(msgspec.Struct, frozen=True):
    """What is used of /proc/PID/stat. `blocked_ticks` stays 0 without delay accounting."""

    state: str
    minor_faults: int
    major_faults: int
    cpu: int
    blocked_ticks: int


def schedstat(text: str) -> tuple[float, float]:
    """Seconds that a thread ran, and that it waited for a CPU; ValueError for other text."""
    run_ns, wait_ns, _ = text.split()
    return int(run_ns) / 1e9, int(wait_ns) / 1e9


def stat_line(text: str) -> StatLine:
    """Of /proc/PID/stat or of a thread's; ValueError for other text."""
    _, bracket, rest = text.rpartition(")")
    fields = rest.split()
    if not bracket or len(fields) <= _BLOCKED:
        raise ValueError(f"not a process's stat: {text[:80]!r}")
    return StatLine(
        fields[_STATE],
        int(fields[_MINOR]),
        int(fields[_MAJOR]),
        int(fields[_CPU]),
        int(fields[_BLOCKED]),
    )


def switches(text: str) -> tuple[int | None, int | None]:
    """Voluntary and involuntary context switches, of a thread's status."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.endswith("ctxt_switches"):
            found[name] = int(value)
    return found.get("voluntary_ctxt_switches"), found.get("nonvoluntary_ctxt_switches")


def pressure_s(text: str, kind: str) -> float | None:
    """The total of `some` or `full` of a file of /proc/pressure, in seconds; None without it."""
    for line in text.splitlines():
        name, *values = line.split()
        if name == kind:
            for value in values:
                key, _, number = value.partition("=")
                if key == "total":
                    return int(number) / 1e6
    return None


def softnet(text: str) -> SoftnetTotals:
    """Of /proc/net/softnet_stat, over all CPUs: hexadecimal columns, one line per CPU."""
    rows = [line.split() for line in text.splitlines()]
    return SoftnetTotals(
        dropped=sum(int(row[1], 16) for row in rows),
        squeezed=sum(int(row[2], 16) for row in rows),
    )


def net_rx_softirqs(text: str) -> int | None:
    """Rounds of receiving, of /proc/softirqs, over all CPUs."""
    for line in text.splitlines():
        name, *counts = line.split()
        if name == "NET_RX:":
            return sum(int(count) for count in counts)
    return None


def cpu_times(text: str, ticks_per_s: int) -> tuple[CpuTimes, ...]:
    """By the CPU's number, of /proc/stat; a CPU that is off has none."""
    found: dict[int, CpuTimes] = {}
    for line in text.splitlines():
        fields = line.split()
        if not fields or not fields[0].startswith("cpu"):
            break
        if fields[0] != "cpu" and len(fields) > _STEAL:
            found[int(fields[0][3:])] = CpuTimes(
                int(fields[_SOFTIRQ]) / ticks_per_s, int(fields[_STEAL]) / ticks_per_s
            )
    return tuple(found.get(i, CpuTimes(0.0, 0.0)) for i in range(max(found, default=-1) + 1))
