"""CgroupUse: how near a process's control groups are to their limits of CPU and memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from mileage.measure.counter_rates import CounterRates
from mileage.scrape.cgroup import cgroup_lines

__all__ = ["CgroupLook", "CgroupUse"]

_LEVELS_MAX: Final = 16
_UNLIMITED_BYTES: Final = 1 << 62
"""Version 1 writes no limit as the largest number of pages."""
_PERIOD_S: Final = 0.1
_MICRO: Final = 1e-6
_NANO: Final = 1e-9


class CgroupLook(msgspec.Struct, frozen=True, gc=False):
    """Of all groups that the process is in, the one nearest to its limit; None: no limit is set,
    or it is not told. Ratios of CPU are since the look before."""

    throttled_ratio: float | None
    cpu_quota_ratio: float | None
    memory_limit_ratio: float | None


class CgroupUse:
    """Looks at the groups of one process, and at those above them: any of them may stop it.

    They are found once: a process changes its group when it is started, hardly ever later.
    """

    def __init__(
        self,
        pid: int,
        *,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._pid, self._proc, self._cgroups = pid, proc, cgroups
        self._rates = CounterRates()
        self._groups = list(self._find())

    def look(self, at_s: float) -> CgroupLook:
        """One look. Never raises: what cannot be read is None."""
        throttled: list[float] = []
        quota: list[float] = []
        memory: list[float] = []
        for group, unified in self._groups:
            period_s, cores = _limit(group, unified=unified)
            if cores is not None:
                stat = _numbers(group / "cpu.stat")
                cut = self._rates.rate((group, "cut"), stat.get("nr_throttled"), at_s)
                used = self._rates.rate((group, "cpu"), _used_s(group, stat), at_s)
                if cut is not None:
                    throttled.append(min(1.0, cut * period_s))
                if used is not None:
                    quota.append(min(1.0, used / cores))
            if (ratio := _memory(group)) is not None:
                memory.append(ratio)
        return CgroupLook(*(max(each, default=None) for each in (throttled, quota, memory)))

    def quota_cores(self) -> float | None:
        """The smallest quota of CPUs over all groups; None where none is set."""
        found = [cores for g, unified in self._groups if (cores := _limit(g, unified=unified)[1])]
        return min(found, default=None)

    def _find(self) -> Iterator[tuple[Path, bool]]:
        """Directories of the groups, and whether each is of version 2."""
        try:
            text = (self._proc / str(self._pid) / "cgroup").read_text("utf-8", "replace")
        except OSError:
            return
        seen = set()
        for line in cgroup_lines(text):
            unified = not line.controllers
            if not unified and not {"cpu", "memory"} & set(line.controllers):
                continue
            for mount in self._mounts(line.controllers):
                for group in _upwards(mount, line.path):
                    if group not in seen:
                        seen.add(group)
                        yield group, unified

    def _mounts(self, controllers: tuple[str, ...]) -> list[Path]:
        if not controllers:
            hybrid = self._cgroups / "unified"
            return [hybrid if hybrid.is_dir() else self._cgroups]
        names = (",".join(controllers), *controllers)
        return [path for name in names if (path := self._cgroups / name).is_dir()][:1]


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The group and those above it. A path that is not there is of another namespace: what is
    mounted is the process's own group, then."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")][-_LEVELS_MAX:]
    group = mount.joinpath(*parts)
    while group != mount:
        if group.is_dir():
            yield group
        group = group.parent
    yield mount


def _limit(group: Path, *, unified: bool) -> tuple[float, float | None]:
    """Seconds of a period, and cores that may be used in it."""
    if unified:
        words = _text(group / "cpu.max").split()
        if len(words) != 2 or words[0] == "max":
            return _PERIOD_S, None
        quota, period = _number(words[0]), _number(words[1])
    else:
        quota = _number(_text(group / "cpu.cfs_quota_us"))
        period = _number(_text(group / "cpu.cfs_period_us"))
    if quota is None or period is None or quota <= 0 or period <= 0:
        return _PERIOD_S, None
    return period * _MICRO, quota / period


def _used_s(group: Path, stat: dict[str, float]) -> float | None:
    if "usage_usec" in stat:
        return stat["usage_usec"] * _MICRO
    total = _number(_text(group / "cpuacct.usage"))
    return None if total is None else total * _NANO


def _memory(group: Path) -> float | None:
    for used_name, limit_name in (
        ("memory.current", "memory.max"),
        ("memory.usage_in_bytes", "memory.limit_in_bytes"),
    ):
        used, limit = _number(_text(group / used_name)), _number(_text(group / limit_name))
        if used is not None and limit is not None and 0 < limit < _UNLIMITED_BYTES:
            return min(1.0, used / limit)
    return None


def _numbers(path: Path) -> dict[str, float]:
    """`name number` lines."""
    found = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if (number := _number(value)) is not None:
            found[name] = number
    return found


def _number(text: str) -> float | None:
    word = text.strip()
    return float(word) if word.isascii() and word.isdecimal() and len(word) < 25 else None


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
