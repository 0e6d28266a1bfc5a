"""ServedRequest: what a gateway recorded of one answer, as far as an engine's steps show in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from mileage.core.actions import Action, Dispatch, Join
from mileage.core.events import (
    Arrived,
    Cancelled,
    Event,
    Failed,
    Finished,
    FirstToken,
    ReplicaDown,
)
from mileage.core.timeline import RequestTimeline

__all__ = ["ServedRequest", "served_of_events", "served_of_timelines"]

_OPEN_MAX: Final = 100_000
_NS: Final = 1e-9
_US: Final = 1e-6


class ServedRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer that was complete; seconds are on one clock for all requests.

    `first_s` is None where the answer came in one piece: such a request is only a load on others.
    `token_times_s` are those of its token events, ascending; empty: not recorded.
    """

    replica: str
    dispatched_s: float
    first_s: float | None
    last_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    token_times_s: tuple[float, ...] = ()

    @property
    def computed_tokens(self) -> int:
        """Of its prompt, those that were not found in the cache: one at least."""
        return max(1, self.prompt_tokens - (self.cached_tokens or 0))


def served_of_timelines(timelines: Iterable[RequestTimeline]) -> Iterator[ServedRequest]:
    """Those of a ledger's records that engines answered well, with all counts.

    What shared the generation of another is in that one's record; a call with the items of several
    requests tells nothing of any one of them.
    """
    origin_ns: int | None = None
    for line in timelines:
        if origin_ns is None:
            origin_ns = line.arrived_at_utc_ns
        output = line.output_tokens or line.output_tokens_counted
        dispatched_s, end_s = line.dispatched_s, line.last_token_s or line.finished_s
        if line.outcome != "ok" or line.replica is None or line.merged_into is not None:
            continue
        if line.attempts > 1 or dispatched_s is None or end_s is None:
            continue
        if not line.prompt_tokens or not output or line.endpoint == "embeddings":
            continue
        arrived_s = (line.arrived_at_utc_ns - origin_ns) * _NS
        flat = line.token_times
        events = sum(flat[1::2])
        # A stream of which some events are missing has gaps that are no steps.
        whole = events == output and max(flat[1::2], default=0) == 1
        yield ServedRequest(
            replica=line.replica,
            dispatched_s=arrived_s + dispatched_s,
            first_s=None if line.first_token_s is None else arrived_s + line.first_token_s,
            last_s=arrived_s + end_s,
            prompt_tokens=line.prompt_tokens,
            output_tokens=output,
            cached_tokens=line.cached_tokens,
            token_times_s=tuple(arrived_s + at * _US for at in flat[::2]) if whole else (),
        )


class _Open:
    __slots__ = ("batched", "dispatched_s", "first_s", "replica")

    def __init__(self, replica: str, dispatched_s: float, *, batched: bool) -> None:
        self.replica, self.dispatched_s, self.batched = replica, dispatched_s, batched
        self.first_s: float | None = None


def served_of_events(
    handlings: Iterable[tuple[float, Event, tuple[Action, ...]]],
) -> Iterator[ServedRequest]:
    """Those of a journal that engines answered well, as they end; without the times of tokens.

    `handlings`: seconds, what the controller was told then, and what it did.
    """
    in_flight: dict[int, _Open] = {}
    batches: set[int] = set()
    for now_s, event, actions in handlings:
        if isinstance(event, Finished):
            ended = in_flight.pop(event.request_id, None)
            batches.discard(event.request_id)
            made = None if ended is None else _made(ended, event, now_s)
            if made is not None:
                yield made
        elif isinstance(event, FirstToken):
            if (begun := in_flight.get(event.request_id)) and begun.first_s is None:
                begun.first_s = now_s
        elif isinstance(event, Cancelled | Failed):
            in_flight.pop(event.request_id, None)
        elif isinstance(event, ReplicaDown):
            for key in [k for k, v in in_flight.items() if v.replica == event.replica]:
                del in_flight[key]
        elif isinstance(event, Arrived) and event.request.endpoint == "embeddings":
            batches.add(event.request.id)
        for action in actions:
            if isinstance(action, Dispatch):
                batched = action.request_id in batches
                in_flight[action.request_id] = _Open(action.replica, now_s, batched=batched)
            elif isinstance(action, Join) and action.kind == "batch":
                batches.add(action.leader_id)
                batches.discard(action.request_id)
        if len(in_flight) > _OPEN_MAX:
            del in_flight[next(iter(in_flight))]


def _made(begun: _Open, end: Finished, now_s: float) -> ServedRequest | None:
    if begun.batched or not end.prompt_tokens or not end.output_tokens:
        return None
    last_s = now_s
    if begun.first_s is not None and end.itl_mean_s is not None:
        # The end of an answer may come after its last token: with its usage.
        last_s = min(now_s, begun.first_s + end.itl_mean_s * (end.output_tokens - 1))
    return ServedRequest(
        replica=begun.replica,
        dispatched_s=begun.dispatched_s,
        first_s=begun.first_s,
        last_s=last_s,
        prompt_tokens=end.prompt_tokens,
        output_tokens=end.output_tokens,
        cached_tokens=end.cached_tokens,
    )
