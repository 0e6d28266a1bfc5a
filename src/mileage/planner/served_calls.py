"""served_of_calls(): what a load generator saw of an engine's answers, as its steps show in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mileage.costmodel.served import ServedRequest
from mileage.measure.call_record import CallRecord

__all__ = ["served_of_calls"]


def served_of_calls(
    records: Iterable[CallRecord], targets: Sequence[str]
) -> Iterator[ServedRequest]:
    """Those that ended well with the engine's own counts, as of the target that each went to.

    `targets`: names by the record's `target`; one that has none is called by its number. Warm-up
    counts: it was load, too. A request that was sent twice tells nothing of when its engine knew
    of it.
    """
    for record in records:
        sent_s, end_s = record.sent_s, record.ended_s
        if record.outcome != "ok" or record.attempts > 1 or record.endpoint == "embeddings":
            continue
        if sent_s is None or end_s is None or not record.prompt_tokens or not record.output_tokens:
            continue
        times, events = record.token_times_s, record.token_events
        # A stream of which some events came together has gaps that are no steps.
        whole = sum(events) == record.output_tokens and max(events, default=0) == 1
        name = record.target
        yield ServedRequest(
            replica=targets[name] if name < len(targets) else str(name),
            dispatched_s=sent_s,
            first_s=times[0] if times else None,
            last_s=times[-1] if times else end_s,
            prompt_tokens=record.prompt_tokens,
            output_tokens=record.output_tokens,
            cached_tokens=record.cached_tokens,
            token_times_s=tuple(times) if whole else (),
        )
