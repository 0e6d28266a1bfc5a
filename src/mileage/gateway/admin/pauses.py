"""PauseList: what kept workers from their requests of late, with the time of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mileage.gateway.messages import Report

__all__ = ["PauseList", "PauseRow", "pause_list"]


class PauseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pause of one worker. `at_utc_s` is when it began, in seconds since 1970."""

    pid: int
    kind: Literal["gc", "event_loop"]
    at_utc_s: float
    length_s: float
    generation: int | None = None


class PauseList(msgspec.Struct, frozen=True, kw_only=True):
    """The pauses of the last minute, as they began."""

    pauses: list[PauseRow]


def pause_list(reports: Sequence[Report]) -> PauseList:
    """The pauses that the workers' latest reports tell of."""
    rows = [
        PauseRow(
            pid=report.pid,
            kind=pause.kind,
            at_utc_s=pause.at_utc_s,
            length_s=pause.length_s,
            generation=pause.generation,
        )
        for report in reports
        for pause in report.pauses
    ]
    return PauseList(pauses=sorted(rows, key=lambda row: row.at_utc_s))
