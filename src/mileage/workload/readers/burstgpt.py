"""Reads BurstGPT traces: Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type.

Format: github.com/HPMLL/BurstGPT, README.md. Timestamps are whole seconds since the first day;
release v2.0 has two more columns, Session ID and Elapsed time. A request that failed has 0 response
tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mileage.core.errors import TraceError
from mileage.workload.cells import count_of, number_of, text_id
from mileage.workload.ordering import Row
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.table import Table
from mileage.workload.trace_check import ARRIVED_MAX_S
from mileage.workload.trace_request import TraceRequest

__all__ = ["COLUMNS", "burstgpt_rows"]

COLUMNS: Final = frozenset({b"timestamp", b"model", b"request tokens", b"response tokens"})
"""Those that a table must have, in lower case."""


def burstgpt_rows(
    lines: Iterable[bytes], path: str, options: ReadOptions, tally: ReadTally
) -> Iterator[Row]:
    """Each record as a request, by seconds since the first record. Raises TraceError."""
    table = Table(lines, path, forgive=tally.forgive)
    names = [name.lower() for name in table.header()]
    missing = sorted(name.decode() for name in COLUMNS if name.decode() not in names)
    if missing:
        raise TraceError(path, 1, f"has no column {missing[0]!r}")
    time, model, prompt, output = map(
        names.index, ("timestamp", "model", "request tokens", "response tokens")
    )
    session = names.index("session id") if "session id" in names else None
    origin_s: float | None = None
    for number, cells in table:
        try:
            time_s = number_of(cells[time], "Timestamp", path, number, high=ARRIVED_MAX_S)
            prompt_tokens = count_of(cells[prompt], "Request tokens", path, number)
            output_tokens = count_of(cells[output], "Response tokens", path, number)
        except TraceError as error:
            tally.forgive(error)
            continue
        if origin_s is None:
            origin_s = time_s
        tally.records += 1
        if not (prompt_tokens and output_tokens):
            tally.failed += 1
            if not options.keep_failed:
                continue
        request = TraceRequest(
            arrived_s=time_s - origin_s,
            prompt_tokens=prompt_tokens or 1,
            output_tokens=output_tokens or 1,
            model=cells[model] or None,
            conversation=text_id(cells[session]) if session is not None else None,
        )
        yield request.arrived_s, number, request
