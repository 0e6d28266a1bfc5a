"""HostTotals: cores, context switches and pressure of a host, as rates between two reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mileage.measure.counter_rates import CounterRates
from mileage.scrape.host_files import KeptFile, pressure_s

__all__ = ["HostTotals"]

_IDLE: Final = (3, 4)
_STEAL: Final = 7
"""Places in a line of /proc/stat: idle, iowait; steal."""
_PRESSURES: Final = (("cpu", "some"), ("memory", "full"), ("io", "full"))


class HostTotals:
    """Totals of the host, from files of /proc that stay open."""

    def __init__(self, proc: Path) -> None:
        self._rates = CounterRates()
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._files: dict[str, KeptFile] = {}
        for name in ("stat", *(f"pressure/{name}" for name, _ in _PRESSURES)):
            try:
                self._files[name] = KeptFile(proc / name)
            except OSError:
                continue  # an older kernel, or one without PSI

    def read(self, at_s: float) -> tuple[float | None, float | None, float | None]:
        """Share of all cores, of the busiest core, and context switches per second."""
        cores: list[float | None] = []
        whole = switches = None
        for line in self._text("stat").splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and len(fields) > _STEAL:
                busy = sum(
                    int(ticks)
                    for place, ticks in enumerate(fields[: _STEAL + 1])
                    if place not in (*_IDLE, _STEAL)
                )
                ratio = self._rates.rate(name, busy / self._ticks_per_s, at_s)
                if name == "cpu":
                    whole = ratio
                else:
                    cores.append(None if ratio is None else min(1.0, ratio))
            elif name == "ctxt" and fields:
                switches = self._rates.rate(name, float(fields[0]), at_s)
                break
        known = [ratio for ratio in cores if ratio is not None]
        mean = min(1.0, whole / len(cores)) if whole is not None and cores else None
        return mean, max(known, default=None), switches

    def pressure(self, at_s: float) -> tuple[float | None, float | None, float | None]:
        """Shares of the time since the read before, of CPU (some), memory and disk (full)."""
        ratios = []
        for name, kind in _PRESSURES:
            total_s = pressure_s(self._text(f"pressure/{name}"), kind)
            ratio = self._rates.rate((name, kind), total_s, at_s)
            ratios.append(None if ratio is None else min(1.0, ratio))
        return ratios[0], ratios[1], ratios[2]

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

    def _text(self, name: str) -> str:
        try:
            return self._files[name].read() if name in self._files else ""
        except OSError:
            return ""
