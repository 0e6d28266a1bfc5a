"""MemoryTraffic: bytes per second between a machine's processors and its memory (resctrl)."""

from __future__ import annotations

from pathlib import Path

from mileage.measure.counter_rates import CounterRates

__all__ = ["MemoryTraffic"]

_RESCTRL = Path("/sys/fs/resctrl/mon_data")


class MemoryTraffic:
    """Memory bandwidth monitoring of Linux's resctrl: all processes together.

    It must be mounted (`mount -t resctrl resctrl /sys/fs/resctrl`) on a processor that has it, and
    mostly only root may read it. Virtual machines have none.
    """

    def __init__(self, mon_data: Path = _RESCTRL) -> None:
        self._files = sorted(mon_data.glob("mon_L3_*/mbm_total_bytes"))
        self._rates = CounterRates()

    @property
    def is_there(self) -> bool:
        """Whether this machine counts it."""
        return bool(self._files)

    def read(self, at_s: float) -> float | None:
        """Bytes per second since the read before, both ways; None where a cache does not tell."""
        rates = []
        for file in self._files:
            try:
                total = float(int(file.read_text("ascii")))
            except (OSError, ValueError):  # "Unavailable", "Error"
                total = None
            rates.append(self._rates.rate(file, total, at_s))
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None
