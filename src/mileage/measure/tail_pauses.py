"""host_pauses(): when processes stood still, from what was sampled of them and of their host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mileage.measure.tail_host import HostSample, Pause, ProcessTotals
from mileage.measure.tail_stage import Cause

__all__ = ["host_pauses"]

_LEAST_S = 0.0005
"""Shorter ones are not told: there are many, and no tail is made of them."""


def host_pauses(
    samples: Sequence[HostSample], *, minor_fault_s: float | None = None
) -> list[Pause]:
    """The pauses between samples, which are in order of time.

    stopped: from half-way before the first sample that saw it to half-way after the last.
    run_queue: what the thread waited that waited longest; a wait longer than the time since the
    sample before has begun before that, as the kernel tells of a wait when it ends.
    page_fault: where the process had major faults, the time it was blocked, or if the kernel does
    not tell that, the time in which the whole host waited for disk or memory; and `minor_fault_s`
    for each minor fault. softirq, steal: of the CPU that the process ran on. pressure: what the
    whole host waited for disk or memory, where the process had no major fault.
    """
    found = list(_stops(samples))
    for before, after in pairwise(samples):
        if after.at_s <= before.at_s:
            continue
        earlier = {(p.role, p.pid): p for p in before.processes}
        for process in after.processes:
            last = earlier.get((process.role, process.pid))
            if last is not None:
                found += _between(before, after, last, process, minor_fault_s)
    for before, after in pairwise([sample for sample in samples if sample.cpus]):
        if after.at_s > before.at_s:
            for process in after.processes:
                found += _cpu_between(before, after, process)
    return sorted(found, key=lambda pause: (pause.start_s, pause.end_s))


def _stops(samples: Sequence[HostSample]) -> Iterator[Pause]:
    since: dict[tuple[str, int], float] = {}
    last_s = samples[0].at_s if samples else 0.0
    for sample in samples:
        middle_s = (last_s + sample.at_s) / 2
        for process in sample.processes:
            key = (process.role, process.pid)
            if process.stopped:
                since.setdefault(key, middle_s)
            elif key in since:
                yield _pause("stopped", process, since.pop(key), middle_s)
        last_s = sample.at_s
    for process in samples[-1].processes if samples else ():
        if (process.role, process.pid) in since:
            yield _pause("stopped", process, since[process.role, process.pid], last_s)


def _between(
    before: HostSample,
    after: HostSample,
    last: ProcessTotals,
    process: ProcessTotals,
    minor_fault_s: float | None,
) -> Iterator[Pause]:
    start_s, end_s = before.at_s, after.at_s
    waits = {
        tid: wait - last.wait_s[tid] for tid, wait in process.wait_s.items() if tid in last.wait_s
    }
    if waits:
        tid = max(waits, key=waits.__getitem__)
        if waits[tid] >= _LEAST_S:
            began_s = min(start_s, end_s - waits[tid])
            switches = _grown(last.involuntary_switches, process.involuntary_switches)
            detail = f"thread {tid}" + (f", {switches} times preempted" if switches else "")
            yield _pause("run_queue", process, began_s, end_s, waits[tid], detail)
    blocked_s = _blocked_s(before, after, last, process)
    major = _grown(last.major_faults, process.major_faults) or 0
    minor = _grown(last.minor_faults, process.minor_faults) or 0
    faults_s = minor * (minor_fault_s or 0.0) + (blocked_s if major else 0.0)
    if faults_s >= _LEAST_S:
        detail = f"{major} major and {minor} minor faults"
        yield _pause("page_fault", process, start_s, end_s, faults_s, detail)
    if blocked_s >= _LEAST_S and not major:
        yield _pause("pressure", process, start_s, end_s, blocked_s)


def _cpu_between(before: HostSample, after: HostSample, process: ProcessTotals) -> Iterator[Pause]:
    cpu, start_s, end_s = process.cpu, before.at_s, after.at_s
    if cpu is None or cpu >= min(len(before.cpus), len(after.cpus)):
        return
    softirq_s = after.cpus[cpu].softirq_s - before.cpus[cpu].softirq_s
    if softirq_s >= _LEAST_S:
        yield _pause("softirq", process, start_s, end_s, softirq_s, _packets(before, after))
    steal_s = after.cpus[cpu].steal_s - before.cpus[cpu].steal_s
    if steal_s >= _LEAST_S:
        yield _pause("steal", process, start_s, end_s, steal_s)


def _blocked_s(
    before: HostSample, after: HostSample, last: ProcessTotals, process: ProcessTotals
) -> float:
    """How long the process waited for disk or memory, or if that is not told, its whole host."""
    if last.blocked_s is not None and process.blocked_s is not None:
        return max(0.0, process.blocked_s - last.blocked_s)
    total = 0.0
    for name in ("memory_s", "io_s"):
        was, now = getattr(before.pressure, name, None), getattr(after.pressure, name, None)
        if was is not None and now is not None:
            total += max(0.0, now - was)
    return total


def _packets(before: HostSample, after: HostSample) -> str:
    said = []
    received = _grown(before.net_rx_softirqs, after.net_rx_softirqs)
    if received is not None:
        said.append(f"{received} rounds of receiving on the host")
    if before.softnet is not None and after.softnet is not None:
        more = {
            "out of time": after.softnet.squeezed - before.softnet.squeezed,
            "packets dropped": after.softnet.dropped - before.softnet.dropped,
        }
        said += [f"{count} {name}" for name, count in more.items() if count > 0]
    return ", ".join(said)


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _pause(
    cause: Cause,
    process: ProcessTotals,
    start_s: float,
    end_s: float,
    busy_s: float | None = None,
    detail: str = "",
) -> Pause:
    """Held for all of the time, or for a part of it."""
    length_s = end_s - start_s
    return Pause(
        cause=cause,
        role=process.role,
        start_s=start_s,
        end_s=end_s,
        busy_s=length_s if busy_s is None else min(length_s, busy_s),
        pid=process.pid,
        detail=detail,
    )
