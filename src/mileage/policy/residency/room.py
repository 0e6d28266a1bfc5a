"""Which models make room for another one in a memory that they share."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["Resident", "make_room"]

_IDLE_MIN_S = 1.0


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded model that may go. `load_cost_s`: what it costs to load it again, in seconds of an
    idle model; `return_s`: when its next use is expected, None where nothing is known."""

    name: str
    memory_bytes: int
    idle_s: float
    load_cost_s: float
    return_s: float | None = None

    @property
    def worth(self) -> float:
        """What is lost by its going, per second and byte of the room that it makes.

        Where nothing is known of it, its next use is as far away as its last one.
        """
        away_s = self.idle_s if self.return_s is None else self.return_s
        return self.load_cost_s / max(away_s, _IDLE_MIN_S) / max(self.memory_bytes, 1)


def make_room(residents: Iterable[Resident], missing_bytes: int) -> tuple[str, ...] | None:
    """Who goes, so that so many bytes become free; None where all together are not enough.

    Those whose going costs least go first; nobody goes whose room is not needed.
    """
    going: list[Resident] = []
    for resident in sorted(residents, key=lambda each: (each.worth, each.name)):
        if missing_bytes <= 0:
            break
        going.append(resident)
        missing_bytes -= resident.memory_bytes
    if missing_bytes > 0:
        return None
    spare_bytes = -missing_bytes
    for resident in sorted(going, key=lambda each: -each.worth):
        if going and resident.memory_bytes <= spare_bytes:
            going.remove(resident)
            spare_bytes -= resident.memory_bytes
    return tuple(each.name for each in going)
