"""Flights: what a window's requests had of an engine, as columns; merged ones as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mileage.core.timeline import RequestTimeline
from mileage.ledger.columns import Floats, Ints

__all__ = ["Flights", "flights_of"]

_NS: Final = 1e-9
_OFFSET_MAX_S: Final = 1e7
"""Offsets beyond (a hundred days) are no offsets of a request."""
_TOKENS_MAX: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Flights:
    """One row per generation, or call, that an engine was asked for, in the order of its id.

    Seconds are after the window's start, so below 0 for what began before it.
    """

    ids: Ints
    """Of the request that has the tokens."""
    start_s: Floats
    """Dispatch."""
    first_s: Floats
    """First token; NaN: not known."""
    end_s: Floats
    """Last token, else the end; never before `start_s`."""
    prompt_tokens: Floats
    """0 where not known."""
    cached_tokens: Floats
    """NaN: the engine does not tell."""
    output_tokens: Floats
    stall_s: Floats
    """The longest gap between two of its tokens; 0: not known."""
    token_times: tuple[tuple[int, ...], ...]
    """As in RequestTimeline, empty where unknown; after `arrived_s`."""
    arrived_s: Floats
    members: tuple[tuple[RequestTimeline, ...], ...] | None
    """Those that shared each generation; None: none did."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def uncached_tokens(self) -> Floats:
        """Of the prompt, those to be computed, as far as is known: one at least of any prompt."""
        cached = np.nan_to_num(self.cached_tokens)
        least = np.minimum(self.prompt_tokens, 1.0)
        tokens: Floats = np.maximum(least, self.prompt_tokens - cached)
        return tokens


def flights_of(requests: Sequence[RequestTimeline], start_at_utc_ns: int) -> Flights:
    """Of those that were sent to the engine: not those rejected, lost, or never dispatched.

    A request whose `merged_into` is not among them stands for the generation itself.
    """
    sent = [r for r in requests if r.dispatched_s is not None and r.outcome != "rejected"]
    sent.sort(key=_id)
    members = None
    if any(r.merged_into is not None for r in sent):
        groups: dict[int, list[RequestTimeline]] = {}
        for request in sent:
            key = request.id if request.merged_into is None else request.merged_into
            groups.setdefault(key, []).append(request)
        members = tuple(tuple(groups[key]) for key in sorted(groups))
        sent = [_generation(key, groups[key]) for key in sorted(groups)]
    arrived_s = np.array([(r.arrived_at_utc_ns - start_at_utc_ns) * _NS for r in sent])
    start_s = arrived_s + _offsets([r.dispatched_s for r in sent])
    first_s = arrived_s + _offsets([r.first_token_s for r in sent])
    ends = [r.finished_s if r.last_token_s is None else r.last_token_s for r in sent]
    end_s = arrived_s + _offsets(ends)
    end_s = np.fmax(end_s, start_s)  # NaN: nothing but its dispatch is known
    return Flights(
        ids=np.array([r.id for r in sent], dtype=np.int64),
        start_s=start_s,
        first_s=np.where((first_s >= start_s) & (first_s <= end_s), first_s, np.nan),
        end_s=end_s,
        prompt_tokens=_counts([r.prompt_tokens for r in sent], 0.0),
        cached_tokens=_counts([r.cached_tokens for r in sent], np.nan),
        output_tokens=_counts(
            [r.output_tokens_counted if r.output_tokens is None else r.output_tokens for r in sent],
            0.0,
        ),
        stall_s=np.nan_to_num(_offsets([r.itl_max_s for r in sent])),
        token_times=tuple([r.token_times for r in sent]),
        arrived_s=arrived_s,
        members=members,
    )


def _id(request: RequestTimeline) -> int:
    return request.id


def _offsets(values: Sequence[float | None]) -> Floats:
    offsets = np.array(values, dtype=np.float64)  # None becomes NaN
    possible: Floats = np.where(np.abs(offsets) <= _OFFSET_MAX_S, np.maximum(offsets, 0.0), np.nan)
    return possible


def _counts(values: Sequence[int | None], missing: float) -> Floats:
    counts = np.array(values, dtype=np.float64)
    counts = np.where(np.isnan(counts), missing, counts)
    clipped: Floats = np.clip(counts, 0.0, _TOKENS_MAX)
    return clipped


def _generation(key: int, members: Sequence[RequestTimeline]) -> RequestTimeline:
    """One record for all that shared a generation: from the first dispatch to the last end.

    Its tokens are those of the record that has them, the first where that one is elsewhere. A batch
    of embeddings has the tokens of all: each record has its own.
    """
    owner = next((r for r in members if r.id == key), members[0])
    origin_ns = owner.arrived_at_utc_ns

    def moment(request: RequestTimeline, offset_s: float | None) -> float | None:
        if offset_s is None:
            return None
        return (request.arrived_at_utc_ns - origin_ns) * _NS + offset_s

    def known(values: Sequence[float | None]) -> list[float]:
        return [value for value in values if value is not None]

    batch = owner.endpoint == "embeddings"
    prompts = [r.prompt_tokens for r in members if r.prompt_tokens is not None]
    starts = known([moment(r, r.dispatched_s) for r in members])
    firsts = known([moment(r, r.first_token_s) for r in members])
    lasts = known([moment(r, r.last_token_s or r.finished_s) for r in members])
    outputs = [n for r in members if (n := r.output_tokens or r.output_tokens_counted) is not None]
    # An owner that left before the end has not all of the times.
    times = owner if owner.token_times else max(members, key=lambda r: len(r.token_times))
    shift_us = (times.arrived_at_utc_ns - origin_ns) // 1000
    return RequestTimeline(
        id=key,
        tenant=owner.tenant,
        model=owner.model,
        endpoint=owner.endpoint,
        stream=owner.stream,
        arrived_at_utc_ns=origin_ns,
        outcome=owner.outcome,
        status=owner.status,
        dispatched_s=max(0.0, min(starts)),
        first_token_s=min(firsts, default=None),
        last_token_s=max(lasts, default=None),
        prompt_tokens=(sum(prompts) if batch else max(prompts)) if prompts else None,
        cached_tokens=owner.cached_tokens,
        output_tokens=max(outputs, default=None),
        itl_max_s=owner.itl_max_s,
        token_times=tuple(
            value + shift_us if index % 2 == 0 else value
            for index, value in enumerate(times.token_times)
        ),
    )
