"""Requests out of a ledger's records: what came, with the tokens that the engines counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mileage.core.timeline import RequestTimeline
from mileage.workload.ordering import Row
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.trace_request import TraceRequest

__all__ = ["timeline_rows"]

_NS: Final = 1_000_000_000


def timeline_rows(
    timelines: Iterable[RequestTimeline], options: ReadOptions, tally: ReadTally
) -> Iterator[Row]:
    """Each record as a request, by seconds since the first one that came.

    What a request would have generated is known only where it was served: others (refused, failed,
    cancelled, or without token counts) are counted as failed and left out. `keep_failed` keeps
    those whose prompt was counted, with the tokens that were seen, one at least. Requests that
    shared one generation have the same `content_id`.
    """
    origin_ns: int | None = None
    for number, line in enumerate(timelines, 1):
        if origin_ns is None:
            origin_ns = line.arrived_at_utc_ns
        tally.records += 1
        output = line.output_tokens
        if output is None:
            output = line.output_tokens_counted
        embeds = line.endpoint == "embeddings"
        served = line.outcome == "ok" and bool(line.prompt_tokens) and (embeds or bool(output))
        if not served:
            tally.failed += 1
            if not (options.keep_failed and line.prompt_tokens):
                continue
        arrived_s = (line.arrived_at_utc_ns - origin_ns) / _NS
        request = TraceRequest(
            arrived_s=arrived_s,
            prompt_tokens=line.prompt_tokens or 1,
            output_tokens=0 if embeds else output or 1,
            tenant=line.tenant or "default",
            model=line.model or None,
            endpoint=line.endpoint,
            stream=line.stream,
            content_id=None if embeds else _shared(line),
        )
        yield arrived_s, number, request


def _shared(line: RequestTimeline) -> int | None:
    if line.merged_into is not None:
        return line.merged_into
    return line.id if line.merged_members is not None else None
