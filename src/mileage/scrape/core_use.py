"""CoreUse: which share of a time each core of this machine was idle, from /proc/stat."""

from __future__ import annotations

from pathlib import Path

from mileage.core.errors import EngineError

__all__ = ["CoreUse"]

_IDLE, _IOWAIT, _FIELDS = 3, 4, 8
"""user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already."""


class CoreUse:
    """Compares each look with the one before. A core that waits for a disk is idle."""

    def __init__(self, path: Path = Path("/proc/stat")) -> None:
        self._path = path
        self._last: dict[str, tuple[int, int]] = {}

    def look(self) -> dict[str, float]:
        """Core -> its idle share since the last look; empty the first time.

        Raises EngineError where the kernel does not tell.
        """
        now = self._read()
        found = {}
        for core, (idle, whole) in now.items():
            before = self._last.get(core)
            if before is not None and whole > before[1]:
                ratio = (idle - before[0]) / (whole - before[1])
                found[core] = min(1.0, max(0.0, ratio))
        self._last = now
        return found

    def _read(self) -> dict[str, tuple[int, int]]:
        try:
            lines = self._path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise EngineError("host", f"{self._path} cannot be read: {error}") from error
        found = {}
        for line in lines:
            name, _, rest = line.partition(" ")
            if name.startswith("cpu") and name[3:].isdecimal():
                ticks = [int(field) for field in rest.split()[:_FIELDS]]
                if len(ticks) > _IOWAIT:
                    found[f"core {name[3:]}"] = (ticks[_IDLE] + ticks[_IOWAIT], sum(ticks))
        if not found:
            raise EngineError("host", f"{self._path} tells of no core")
        return found
