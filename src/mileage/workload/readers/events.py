"""Requests out of a journal's events: what the controller was told of each from arrival to end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from mileage.core.actions import Action, Join, Reject
from mileage.core.events import Arrived, Cancelled, Event, Failed, Finished
from mileage.core.request import Request
from mileage.workload.ordering import Row
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.trace_check import TOKENS_MAX
from mileage.workload.trace_request import TraceRequest

__all__ = ["Handling", "event_rows"]

Handling: TypeAlias = tuple[float, Event, tuple[Action, ...]]
"""Seconds on a clock that all the journal's parts share, what happened then, what was done."""

_OPEN_MAX: Final = 100_000


class _Open:
    """A request that has arrived; `output_tokens` None: it has not ended."""

    __slots__ = (
        "arrived_s",
        "ended",
        "number",
        "output_tokens",
        "prompt_tokens",
        "request",
        "shared",
    )

    def __init__(self, arrived_s: float, number: int, request: Request) -> None:
        self.arrived_s, self.number, self.request = arrived_s, number, request
        self.ended = False
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.shared = False
        """Its call to the engine had the items of others in it, so their counts are of them all."""


def event_rows(
    handlings: Iterable[Handling], options: ReadOptions, tally: ReadTally
) -> Iterator[Row]:
    """Each request that arrived, in that order, by seconds since the first one.

    One waits here until all before it have ended; past 100,000 the first one counts as one that
    never does. As with a ledger, those that were not served are left out, or with `keep_failed`
    kept with the tokens that were seen of them.
    """
    journal = _Journal(options, tally)
    for now_s, event, actions in handlings:
        journal.told(now_s, event, actions)
        yield from journal.ended()
    yield from journal.rest()


class _Journal:
    def __init__(self, options: ReadOptions, tally: ReadTally) -> None:
        self._options, self._tally = options, tally
        self._open: dict[int, _Open] = {}  # in the order of arrival
        self._members: dict[int, list[int]] = {}
        self._origin_s: float | None = None

    def told(self, now_s: float, event: Event, actions: tuple[Action, ...]) -> None:
        """Something happened, and something was done about it."""
        if isinstance(event, Arrived):
            if self._origin_s is None:
                self._origin_s = now_s
            self._tally.records += 1
            request = event.request
            arrived_s = now_s - self._origin_s
            self._open[request.id] = _Open(arrived_s, self._tally.records, request)
        elif isinstance(event, Finished):
            self._end(event.request_id, event.prompt_tokens, event.output_tokens)
        elif isinstance(event, Cancelled) and (left := self._open.get(event.request_id)):
            left.ended = True
            left.output_tokens = event.output_tokens
        elif isinstance(event, Failed) and not event.retryable:
            self._end(event.request_id, None, None)
        for action in actions:
            if isinstance(action, Reject):
                self._end(action.request_id, None, None)
            elif isinstance(action, Join):
                self._join(action)

    def _join(self, action: Join) -> None:
        self._members.setdefault(action.leader_id, []).append(action.request_id)
        if len(self._members) > _OPEN_MAX:
            del self._members[next(iter(self._members))]
        if action.kind == "batch":
            for request_id in (action.leader_id, action.request_id):
                if sharing := self._open.get(request_id):
                    sharing.shared = True

    def ended(self) -> Iterator[Row]:
        """Those at the front that have ended."""
        while self._open:
            first = next(iter(self._open.values()))
            if not first.ended and len(self._open) <= _OPEN_MAX:
                return
            del self._open[first.request.id]
            yield from self._row(first)

    def rest(self) -> Iterator[Row]:
        """All that are left at the end of the journal."""
        for first in self._open.values():
            yield from self._row(first)

    def _end(self, request_id: int, prompt: int | None, output: int | None) -> None:
        """The end of a request is that of all which joined it, also where it was left before."""
        for ended_id in (request_id, *self._members.pop(request_id, ())):
            ending = self._open.get(ended_id)
            if ending is not None and not ending.ended:
                ending.ended = True
                ending.prompt_tokens, ending.output_tokens = prompt, output

    def _row(self, ended: _Open) -> Iterator[Row]:
        request = ended.request
        embeds = request.endpoint == "embeddings"
        output = ended.output_tokens
        counted = None if ended.shared else ended.prompt_tokens
        prompt = counted or request.prompt_tokens_estimate
        if not (ended.ended and prompt and (embeds or (output and ended.prompt_tokens))):
            self._tally.failed += 1
            if not (self._options.keep_failed and prompt):
                return
        made = TraceRequest(
            arrived_s=ended.arrived_s,
            prompt_tokens=prompt,
            output_tokens=0 if embeds else output or 1,
            tenant=request.tenant or "default",
            model=request.model or None,
            endpoint=request.endpoint,
            stream=request.stream,
            # A client may ask for more than any engine gives.
            output_tokens_max=min(request.output_tokens_max or 0, TOKENS_MAX) or None,
            content_id=None if request.merge_key is None else _number(request.merge_key),
            priority=request.priority,
            image_patches=request.image_patches,
            audio_frames=request.audio_frames,
        )
        yield made.arrived_s, ended.number, made


def _number(key: str) -> int:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
