"""Energy of the machine's processors, as Linux's powercap tells it (RAPL)."""

from __future__ import annotations

from pathlib import Path

from mileage.core.errors import EngineError

__all__ = ["RaplEnergy"]

_POWERCAP = Path("/sys/class/powercap")


class RaplEnergy:
    """Joules of all processor packages of the machine, whatever runs on them.

    Counters go round; each is read, and its difference taken, by itself. Mostly only root may read
    them: power readings have told secrets.
    """

    def __init__(self, powercap: Path = _POWERCAP) -> None:
        self._powercap = powercap
        self._last: dict[str, int] | None = None

    def read(self) -> float | None:
        """Joules since the reading before; None the first time. Raises EngineError."""
        now = {zone.name: _number(zone / "energy_uj") for zone in self._zones()}
        if not now:
            raise EngineError("rapl", "this machine does not count its processors' energy")
        last, self._last = self._last, now
        if last is None or last.keys() != now.keys():
            return None
        return sum(self._difference(name, last[name], now[name]) for name in now) / 1e6

    def _zones(self) -> list[Path]:
        """Packages only: what is within one, such as its cores, it counts already."""
        try:
            found = sorted(self._powercap.glob("intel-rapl:*"))
        except OSError:
            return []
        return [zone for zone in found if zone.name.count(":") == 1]

    def _difference(self, name: str, before: int, now: int) -> int:
        if now >= before:
            return now - before
        return now - before + _number(self._powercap / name / "max_energy_range_uj")


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise EngineError("rapl", f"{path} cannot be read: {error}") from error
