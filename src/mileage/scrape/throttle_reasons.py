"""Names of the reasons for which a GPU's clocks are lowered, out of NVML's and DCGM's bit mask."""

from __future__ import annotations

from typing import Final

__all__ = ["HARMLESS", "reasons_of"]

_BITS: Final = {
    0x001: "gpu_idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
}
"""nvmlClocksEventReasons of nvml.h; DCGM's field 112 has the same bits."""

HARMLESS: Final = frozenset({"gpu_idle", "applications_clocks", "display_clocks"})
"""What somebody has chosen, or an idle GPU: it loses nothing."""
_ALL: Final = 0x7FF


def reasons_of(mask: float | None) -> frozenset[str] | None:
    """The names; empty for a mask of 0; None where the mask is not known or is none."""
    if mask is None or not 0 <= mask <= _ALL or mask != int(mask):
        return None
    bits = int(mask)
    return frozenset(
        _BITS.get(1 << place, f"bit_{place}") for place in range(11) if bits & 1 << place
    )
