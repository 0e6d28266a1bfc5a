"""read_timelines(): a gateway's records of the requests of a run, by the ids of their answers."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from mileage.core.timeline import RequestTimeline
from mileage.storage.queries import LedgerReader, RequestFilter

__all__ = ["read_timelines"]

_WAIT_S: Final = 3.0
"""Records reach the ledger's database a moment after their request has ended."""
_POLL_S: Final = 0.25
_CLOCKS_S: Final = 60.0
"""By so much the gateway's clock may differ from ours."""


def read_timelines(
    directory: Path, request_ids: Collection[str], *, since_utc_s: float
) -> dict[str, RequestTimeline]:
    """The records by request id, of those that are there, or come within 3 s.

    Raises LedgerError where there is no ledger that can be read.
    """
    where = RequestFilter(since_utc_ns=round((since_utc_s - _CLOCKS_S) * 1e9))
    wanted = set(request_ids)
    reader = LedgerReader(directory)
    try:
        deadline_s = time.monotonic() + _WAIT_S
        while True:
            found = {
                name: timeline
                for timeline in reader.by_arrival(where)
                if (name := f"req-{timeline.id:x}") in wanted
            }
            if len(found) == len(wanted) or time.monotonic() > deadline_s:
                return found
            time.sleep(_POLL_S)
    finally:
        reader.close()
