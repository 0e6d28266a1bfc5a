"""MachineUse: how busy a machine, its cores and some of its processes were in a window."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["GroupSample", "GroupUse", "MachineSample", "MachineUse", "machine_use"]


class GroupSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Processes that belong together, at one moment: totals since they began."""

    cpu_s: float
    threads_s: dict[int, float] = {}
    """CPU time by thread."""


class MachineSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A machine at one moment: totals. None: it does not tell."""

    at_s: float
    cores_busy_s: tuple[float, ...]
    """By core: time in which it did not idle, time taken by the hypervisor apart."""
    steal_s: float = 0.0
    """Of all cores together."""
    pressure_cpu_s: float | None = None
    """Time in which some task waited for a core (PSI)."""
    pressure_memory_s: float | None = None
    """Time in which all tasks that had something to do waited for memory; so for the disk."""
    pressure_io_s: float | None = None
    network_bytes: dict[str, int] = {}
    """Sent and received by each interface; loopback is none."""
    network_limits: dict[str, float] = {}
    """Bytes per second that an interface can send; those that tell."""
    groups: dict[str, GroupSample] = {}


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of a group used in a window."""

    cores: float
    """CPU seconds per second."""
    thread_ratio: float | None
    """Of a core, by the thread that used most; None: threads were not seen."""


class MachineUse(msgspec.Struct, frozen=True, kw_only=True):
    """What was used in a window. Ratios are of all that there is; None: not known."""

    window_s: float
    cores: int
    cpu_ratio: float
    core_max_ratio: float
    """Of the busiest core."""
    steal_ratio: float
    pressure_cpu_ratio: float | None
    pressure_memory_ratio: float | None
    pressure_io_ratio: float | None
    network_ratio: float | None
    """Of the interface that was nearest to its limit."""
    network_name: str | None
    network_bytes_per_s: float
    groups: dict[str, GroupUse]


def machine_use(samples: Sequence[MachineSample], *, start_s: float, end_s: float) -> MachineUse:
    """The window from the last sample at or before `start_s` (else the first one) to the first at
    or after `end_s` (else the last), on the samples' clock.

    Raises ValueError where these are not two samples.
    """
    before = [sample for sample in samples if sample.at_s <= start_s]
    behind = [sample for sample in samples if sample.at_s >= end_s]
    first = before[-1] if before else samples[0] if samples else None
    last = behind[0] if behind else samples[-1] if samples else None
    if first is None or last is None or last.at_s <= first.at_s:
        raise ValueError("a window of use needs two samples that are apart")
    window_s = last.at_s - first.at_s
    busy = [
        max(0.0, after - earlier) / window_s
        for earlier, after in zip(first.cores_busy_s, last.cores_busy_s, strict=False)
    ]
    network = _network(first, last, window_s)
    name = max(network, key=lambda each: network[each], default=None)
    moved = sum(
        max(0, total - first.network_bytes.get(each, total))
        for each, total in last.network_bytes.items()
    )
    return MachineUse(
        window_s=window_s,
        cores=len(busy),
        cpu_ratio=sum(busy) / len(busy) if busy else 0.0,
        core_max_ratio=max(busy, default=0.0),
        steal_ratio=max(0.0, last.steal_s - first.steal_s) / window_s / max(1, len(busy)),
        pressure_cpu_ratio=_share(first.pressure_cpu_s, last.pressure_cpu_s, window_s),
        pressure_memory_ratio=_share(first.pressure_memory_s, last.pressure_memory_s, window_s),
        pressure_io_ratio=_share(first.pressure_io_s, last.pressure_io_s, window_s),
        network_ratio=None if name is None else network[name],
        network_name=name,
        network_bytes_per_s=moved / window_s,
        groups={
            each: _group(first.groups[each], last.groups[each], window_s)
            for each in last.groups
            if each in first.groups
        },
    )


def _group(first: GroupSample, last: GroupSample, window_s: float) -> GroupUse:
    threads = [
        max(0.0, total_s - first.threads_s.get(number, 0.0)) / window_s
        for number, total_s in last.threads_s.items()
    ]
    return GroupUse(
        cores=max(0.0, last.cpu_s - first.cpu_s) / window_s,
        thread_ratio=max(threads, default=None),
    )


def _network(first: MachineSample, last: MachineSample, window_s: float) -> dict[str, float]:
    return {
        name: max(0, last.network_bytes[name] - first.network_bytes[name]) / window_s / limit
        for name, limit in last.network_limits.items()
        if name in last.network_bytes and name in first.network_bytes and limit > 0.0
    }


def _share(first_s: float | None, last_s: float | None, window_s: float) -> float | None:
    if first_s is None or last_s is None:
        return None
    return min(1.0, max(0.0, last_s - first_s) / window_s)
