"""ContextSwitches: how often the kernel took the gateway's processes off a core, by role."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from mileage.gateway.admin.processes import Role

__all__ = ["ContextSwitches", "SwitchKind"]

SwitchKind: TypeAlias = Literal["voluntary", "involuntary"]

_LINES: Final[dict[bytes, SwitchKind]] = {
    b"voluntary_ctxt_switches": "voluntary",
    b"nonvoluntary_ctxt_switches": "involuntary",
}


class ContextSwitches:
    """Counts those of all threads: /proc/PID/status has the first thread's alone.

    A thread's counts before the first look at it count too where its process was known already.
    What a thread does between the last look and its end is not seen.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._last: dict[tuple[int, int], dict[SwitchKind, int]] = {}
        self._totals: dict[tuple[Role, SwitchKind], int] = {}

    def sample(self, roles: Mapping[int, Role]) -> None:
        """Look at all threads of these processes; those that are gone are left out."""
        seen: dict[tuple[int, int], dict[SwitchKind, int]] = {}
        known = {pid for pid, _ in self._last}
        for pid, role in roles.items():
            for tid in self._threads(pid):
                counts = self._counts(pid, tid)
                seen[pid, tid] = counts
                before = self._last.get((pid, tid), {} if pid in known else counts)
                for kind, count in counts.items():
                    grown = max(0, count - before.get(kind, 0))
                    self._totals[role, kind] = self._totals.get((role, kind), 0) + grown
        self._last = seen

    def totals(self) -> dict[tuple[Role, SwitchKind], int]:
        """Since the first look at each process; empty where the kernel does not tell."""
        return dict(self._totals)

    def _threads(self, pid: int) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self._proc / str(pid) / "task")]
        except OSError:
            return []

    def _counts(self, pid: int, tid: int) -> dict[SwitchKind, int]:
        try:
            text = (self._proc / str(pid) / "task" / str(tid) / "status").read_bytes()
        except OSError:
            return {}
        found: dict[SwitchKind, int] = {}
        for line in text.splitlines():
            name, _, value = line.partition(b":")
            kind = _LINES.get(name)
            if kind is not None and value.strip().isdigit():
                found[kind] = int(value)
        return found
