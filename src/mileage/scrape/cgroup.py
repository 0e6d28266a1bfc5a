"""Control groups of a process: which container, pod or job it belongs to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

import msgspec

from mileage.measure.gpu_sample import GpuOwner

__all__ = ["Binding", "CgroupLine", "binding_of", "cgroup_lines", "owner_of_pid"]

_TEXT_MAX: Final = 64 * 1024
_LINES_MAX: Final = 64
_CONTAINER = re.compile(r"(?:[a-z][a-z-]*[-:])?([0-9a-f]{64})(?:\.scope)?", re.ASCII)
"""`<id>`, `docker-<id>.scope`, `cri-containerd-<id>.scope`, `crio-<id>.scope`, `libpod-<id>`."""
_CONMON: Final = "conmon"
"""The monitor of a container beside it, which is not in it."""
_POD = re.compile(
    r"(?:[\w.-]*-)?pod([0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?"
    r"[0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?",
    re.ASCII,
)
"""`pod<uid>` of cgroupfs; `kubepods-burstable-pod<uid>.slice` of systemd, with _ for -; static
pods have 32 digits without any."""
_JOB = re.compile(r"job_(\d{1,18})", re.ASCII)
_QOS: Final = ("besteffort", "burstable")

Qos = Literal["guaranteed", "burstable", "besteffort"]


class CgroupLine(msgspec.Struct, frozen=True, gc=False):
    """One line of /proc/PID/cgroup. Version 2 has no `controllers`."""

    controllers: tuple[str, ...]
    path: str


class Binding(msgspec.Struct, frozen=True, gc=False):
    """What a process belongs to; empty where it belongs to none, or its path is hidden by a
    namespace of its own."""

    container_id: str = ""
    pod_uid: str = ""
    qos: Qos | None = None
    job: str = ""
    """Of Slurm."""


def cgroup_lines(text: str) -> tuple[CgroupLine, ...]:
    """The lines of /proc/PID/cgroup, version 1, 2 or both; what is no such line is left out."""
    found = []
    for line in text[:_TEXT_MAX].splitlines()[:_LINES_MAX]:
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if number.isascii() and number.isdecimal() and colon and path.startswith("/"):
            found.append(CgroupLine(tuple(filter(None, controllers.split(","))), path))
    return tuple(found)


def binding_of(lines: tuple[CgroupLine, ...]) -> Binding:
    """What the paths tell. Of nested containers (kind, Docker in Docker) the innermost counts."""
    best = Binding()
    for line in lines:
        found = _of_path(line.path)
        if _known(found) > _known(best):
            best = found
    return best


def owner_of_pid(pid: int, proc: Path = Path("/proc")) -> GpuOwner | None:
    """The workload of a process: pod and container by their ids, or the job; None for no such.

    Names of pods are Kubernetes' own, and not to be had from here: `pod` is its uid.
    """
    try:
        text = (proc / str(pid) / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return None
    found = binding_of(cgroup_lines(text))
    if found.job:
        return GpuOwner(pod=f"job_{found.job}")
    if not (found.pod_uid or found.container_id):
        return None
    return GpuOwner(pod=found.pod_uid, container=found.container_id)


def _of_path(path: str) -> Binding:
    container = pod = job = ""
    qos: Qos | None = None
    for part in path.split("/"):
        if match := _POD.fullmatch(part):
            pod = match[1].replace("_", "-")
        elif _CONMON not in part and (match := _CONTAINER.fullmatch(part)):
            container = match[1]
        elif match := _JOB.fullmatch(part):
            job = match[1]
    if pod:
        named = [each for each in _QOS if re.search(rf"(?:^|[/-]){each}(?:[/.-])", path)]
        qos = "guaranteed" if not named else "burstable" if "burstable" in named else "besteffort"
    return Binding(container, pod, qos, job)


def _known(found: Binding) -> int:
    return sum(map(bool, (found.container_id, found.pod_uid, found.job)))
