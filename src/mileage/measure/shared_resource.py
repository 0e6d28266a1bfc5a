"""Which resource the replicas of a scale-out share where one more brings little: by evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

from mileage.measure.machine_use import MachineUse

__all__ = ["ReplicaEvidence", "Shared", "SharedResource", "shared_resources"]

SharedResource = Literal[
    "generator",
    "gateway_core",
    "gpu",
    "cpu",
    "other_programs",
    "hypervisor",
    "memory",
    "disk",
    "network",
    "memory_bandwidth",
    "none_seen",
]
"""generator: the load came no faster, and the point is no measurement; gateway_core: one thread of
what stands before all replicas; cpu: the cores of the machine; other_programs: the same, and most
of their time went to neither replicas, gateway nor generator; hypervisor: cores taken by other
machines; memory, disk: tasks waited for them; memory_bandwidth: each token costs more CPU time
while cores idle, as where caches or memory are shared; none_seen: none of these."""

_THREAD_MIN = 0.9
_CPU_MIN = 0.9
_OWN_MIN = 0.5
"""Of the busy cores' time: below it the machine is full of something else."""
_STEAL_MIN = 0.05
_MEMORY_MIN = 0.05
_DISK_MIN = 0.2
_NETWORK_MIN = 0.8
_TOKEN_MIN = 1.25
_COMPUTING_MIN = 0.25
"""Of the machine's cores: replicas that use less do not compute on them, but wait."""


class ReplicaEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a point beside its throughput."""

    use: MachineUse | None = None
    """None: nobody looked."""
    cpu_s_per_token: float | None = None
    """CPU time of the replicas' processes over their output tokens."""
    generator_reason: str | None = None
    """Why the load generator was the limit; None: it was not."""
    gpu_sharers: dict[str, int] = {}
    """Replicas by GPU."""
    local: bool = True
    """The replicas' processes are on this machine, and were seen."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that is shared, and what shows it."""

    resource: SharedResource
    evidence: str


def shared_resources(base: ReplicaEvidence, at: ReplicaEvidence) -> list[Shared]:
    """What replicas share at a point, the likeliest first; `base` is that with the fewest.

    Never empty: where nothing is seen, `none_seen` says what was looked at. Each is a limit that
    was reached, not one that could be: a lock within the engines, say, shows nowhere here.
    """
    found: list[Shared] = []
    if at.generator_reason is not None:
        found.append(Shared(resource="generator", evidence=at.generator_reason))
    if at.use is not None:
        found += _of_gateway(at.use)
    crowded = {gpu: n for gpu, n in at.gpu_sharers.items() if n > 1}
    if crowded:
        text = ", ".join(f"{n} replicas on {gpu}" for gpu, n in sorted(crowded.items()))
        found.append(Shared(resource="gpu", evidence=text))
    if at.use is not None:
        found += _of_machine(at.use)
    found += _of_tokens(base, at)
    return found or [Shared(resource="none_seen", evidence=_seen(at))]


def _of_gateway(use: MachineUse) -> list[Shared]:
    group = use.groups.get("gateway")
    if group is None or group.thread_ratio is None or group.thread_ratio < _THREAD_MIN:
        return []
    text = f"a thread of the gateway used {group.thread_ratio:.0%} of a core"
    return [Shared(resource="gateway_core", evidence=text)]


def _of_machine(use: MachineUse) -> list[Shared]:
    found: list[Shared] = []
    if use.cpu_ratio >= _CPU_MIN:
        own = sum(group.cores for group in use.groups.values())
        busy = use.cpu_ratio * use.cores
        text = f"{use.cores} cores were {use.cpu_ratio:.0%} busy"
        if use.groups:
            parts = [f"{name} {each.cores:.2f}" for name, each in sorted(use.groups.items())]
            text += f" (cores of {', '.join(parts)}, others {max(0.0, busy - own):.2f})"
        if use.pressure_cpu_ratio is not None:
            text += f"; in {use.pressure_cpu_ratio:.0%} of the time a task waited for one"
        others = bool(use.groups) and own < _OWN_MIN * busy
        found.append(Shared(resource="other_programs" if others else "cpu", evidence=text))
    if use.steal_ratio >= _STEAL_MIN:
        text = f"the hypervisor took {use.steal_ratio:.0%} of the cores' time"
        found.append(Shared(resource="hypervisor", evidence=text))
    if use.pressure_memory_ratio is not None and use.pressure_memory_ratio >= _MEMORY_MIN:
        text = f"all tasks waited for memory in {use.pressure_memory_ratio:.0%} of the time"
        found.append(Shared(resource="memory", evidence=text))
    if use.pressure_io_ratio is not None and use.pressure_io_ratio >= _DISK_MIN:
        text = f"all tasks waited for the disk in {use.pressure_io_ratio:.0%} of the time"
        found.append(Shared(resource="disk", evidence=text))
    if use.network_ratio is not None and use.network_ratio >= _NETWORK_MIN:
        text = f"{use.network_name} carried {use.network_ratio:.0%} of what it can"
        found.append(Shared(resource="network", evidence=text))
    return found


def _of_tokens(base: ReplicaEvidence, at: ReplicaEvidence) -> list[Shared]:
    """CPU time per token grows where cores wait for memory; where all cores are busy it also does
    as they share execution units, so that it says less there."""
    ratio = _token_ratio(base, at)
    if ratio is None or at.use is None or at.use.cpu_ratio >= _CPU_MIN or ratio < _TOKEN_MIN:
        return []
    replicas = at.use.groups.get("replicas")
    if replicas is None or replicas.cores < _COMPUTING_MIN * at.use.cores:
        return []
    text = (
        f"a token took {ratio:.2f} times the CPU time that it took with the fewest replicas, with "
        f"the cores {at.use.cpu_ratio:.0%} busy"
    )
    return [Shared(resource="memory_bandwidth", evidence=text)]


def _token_ratio(base: ReplicaEvidence, at: ReplicaEvidence) -> float | None:
    if not base.cpu_s_per_token or at.cpu_s_per_token is None:
        return None
    return at.cpu_s_per_token / base.cpu_s_per_token


def _seen(at: ReplicaEvidence) -> str:
    use = at.use
    if use is None:
        return "nobody looked at the machine"
    parts = [f"cores {use.cpu_ratio:.0%} busy"]
    for name, share in (
        ("waits for memory", use.pressure_memory_ratio),
        ("for the disk", use.pressure_io_ratio),
    ):
        if share is not None:
            parts.append(f"{name} {share:.0%}")
    for name, group in sorted(use.groups.items()):
        if group.thread_ratio is not None:
            parts.append(f"busiest thread of {name} {group.thread_ratio:.0%}")
    where = "" if at.local else "; the replicas are on other machines, which were not looked at"
    return ", ".join(parts) + where
