"""Ordering: records into the order of their arrival, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import itemgetter
from typing import TypeAlias

from msgspec.structs import replace

from mileage.core.errors import TraceError
from mileage.workload.read_options import ReadTally
from mileage.workload.trace_request import TraceRequest

__all__ = ["Row", "in_order"]

Row: TypeAlias = tuple[float, int, TraceRequest]
"""When it arrived (as in the request), the line that says so, the request."""

_arrived_s = itemgetter(0)


def in_order(
    rows: Iterable[Row], path: str, tally: ReadTally, *, places: int, from_first: bool
) -> Iterator[TraceRequest]:
    """The requests by arrival; those of one moment as they came.

    A record may stand up to `places` too late: servers write a request when it ends, or several
    write one file. One that is later still is a TraceError, as it could not be put in its place
    without all of the trace in memory. `from_first`: times are made to begin with the first
    arrival.
    """
    held: list[Row] = []
    origin_s: float | None = None if from_first else 0.0
    last_s = float("-inf")
    source = iter(rows)
    more = True
    while more:
        more = False
        for row in source:
            held.append(row)
            if len(held) >= 2 * places:
                more = True
                break
        behind = sum(late[0] < early[0] for early, late in pairwise(held))
        if behind:
            tally.reordered += behind
            held.sort(key=_arrived_s)
        if not held:
            return
        first_s, line, _ = held[0]
        if first_s < last_s:
            raise TraceError(
                path,
                line,
                f"arrived {last_s - first_s:.6g} s before a record more than {places} lines"
                " above it: expected a trace in the order of arrival; sort it by time",
            )
        if origin_s is None:
            origin_s = first_s
        ready = held[:places] if more else held
        last_s = ready[-1][0]
        if origin_s:
            for arrived_s, _, request in ready:
                yield replace(request, arrived_s=arrived_s - origin_s)
        else:
            for _, _, request in ready:
                yield request
        del held[:places]
