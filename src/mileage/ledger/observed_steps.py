"""Observed steps: the steps of an engine as the times of its tokens show them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from mileage.ledger.columns import Bools, Floats, Ints
from mileage.ledger.flights import Flights
from mileage.ledger.flows import flows_of

__all__ = ["ObservedSteps", "observe_steps"]

_US: Final = 1e-6
_APART_RATIO: Final = 0.3
_APART_MIN_S, _APART_MAX_S = 20e-6, 0.01
_STALL_STEPS: Final = 4
_STALL_RATIO: Final = 3.0
_BLUR_MAX_RATIO: Final = 0.2
_BEFORE_S, _AFTER_S = 10.0, 30.0
"""Tokens so long before the window and after it are looked at too: for prompts that were begun
there, and for the end of the window's last step."""


@dataclass(frozen=True, slots=True)
class ObservedSteps:
    """Steps in order; what was decoded in them; and the prompts that they had to compute."""

    begin_s: Floats
    end_s: Floats
    """After the window's start. A time in which nobody was there is in none of them."""
    steps: Ints
    """Of each decode: its step, from 0."""
    flights: Ints
    decode_tokens: Floats
    context_tokens: Floats
    """Of the request, before the step."""
    job_flights: Ints
    """Of each prompt, in the order in which they were complete: its flight."""
    job_ready_s: Floats
    """Since when it could be computed."""
    job_steps: Ints
    """The step that completed it."""
    job_tokens: Floats
    """To be computed, as far as is known."""
    job_context: Floats
    """In the cache before."""
    job_again: Floats
    """Of `job_tokens`: computed before, and lost by a preemption."""
    job_sure: Bools
    """All of `job_tokens` was computed: the request had a token."""
    job_seen: Bools
    """Its first token was seen; else its step is a guess."""
    stalls: int
    """Answers that stood still in the window while others went on."""


def observe_steps(flights: Flights, length_s: float) -> ObservedSteps | None:
    """The steps from a little before the window to its end; None where the times of tokens do not
    show any, as all of them came in a blur.

    Tokens of one step come at nearly the same time. Where a stream's tokens came together that
    were made one by one, they are put into the steps before. A stream that stood still while
    others had several steps was preempted: all of its context was computed again.
    """
    at_s, counts, owner, ordinal = _events(flights, length_s)
    if not len(at_s):
        return None
    first = ordinal == 0.0
    # Of a stream that was cut the first token here has none before it.
    head = np.diff(owner, prepend=-1) != 0
    gaps = np.diff(at_s, prepend=at_s[:1])
    own = gaps[~head & (gaps > 0.0)]
    usual_s = float(np.median(own)) if len(own) else _APART_MAX_S
    apart_s = min(_APART_MAX_S, max(_APART_MIN_S, _APART_RATIO * usual_s))
    order = np.argsort(at_s, kind="stable")
    begins = np.diff(at_s[order], prepend=-np.inf) > apart_s
    step_of = np.empty(len(at_s), dtype=np.int64)
    step_of[order] = np.cumsum(begins) - 1
    end_s = at_s[order][begins]
    same = ~head & (np.diff(step_of, prepend=-1) == 0)
    if same.sum() > _BLUR_MAX_RATIO * (~head).sum():
        return None
    passed = np.where(head, 1, np.diff(step_of, prepend=-1))
    passed_s = np.where(head, 0.0, gaps)
    stalled = ~head & (passed - counts >= _STALL_STEPS)
    stalled &= passed_s > _STALL_RATIO * usual_s * counts
    context = flights.prompt_tokens[owner] + ordinal
    seen = _Seen(step_of, owner, counts, context, passed, at_s - passed_s, first, stalled)
    unseen = _untimed(flights, end_s)
    decodes, jobs = _decodes(seen).joined(unseen[0]), _jobs(seen, flights).joined(unseen[1])
    line = np.lexsort((jobs.ready_s, jobs.steps))
    return ObservedSteps(
        begin_s=_begins(flights, end_s),
        end_s=end_s,
        steps=decodes.steps,
        flights=decodes.flights,
        decode_tokens=decodes.tokens,
        context_tokens=decodes.context,
        job_flights=jobs.flights[line],
        job_ready_s=jobs.ready_s[line],
        job_steps=jobs.steps[line],
        job_tokens=jobs.tokens[line],
        job_context=jobs.context[line],
        job_again=jobs.again[line],
        job_sure=jobs.sure[line],
        job_seen=jobs.seen[line],
        stalls=int((stalled & (at_s > 0.0) & (at_s - passed_s < length_s)).sum()),
    )


class _Decodes(NamedTuple):
    steps: Ints
    flights: Ints
    tokens: Floats
    context: Floats

    def joined(self, others: _Decodes) -> _Decodes:
        return _Decodes(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))


class _Jobs(NamedTuple):
    flights: Ints
    ready_s: Floats
    steps: Ints
    tokens: Floats
    context: Floats
    again: Floats
    sure: Bools
    seen: Bools

    def joined(self, others: _Jobs) -> _Jobs:
        return _Jobs(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))


class _Seen(NamedTuple):
    """Token events."""

    step_of: Ints
    owner: Ints
    counts: Floats
    """Tokens."""
    context: Floats
    """Of the request, with its tokens before."""
    passed: Ints
    """Steps since the event before."""
    before_s: Floats
    """When that was."""
    first: Bools
    stalled: Bools


def _decodes(seen: _Seen) -> _Decodes:
    """Rows of what was decoded: step, flight, tokens, context. Tokens that came together are put
    into as many steps before as there were."""
    decodes = ~seen.first & ~seen.stalled
    span = np.maximum(1, np.minimum(seen.counts, seen.passed))[decodes].astype(np.int64)
    rows = np.repeat(np.flatnonzero(decodes), span)
    number, of = _within(span), np.repeat(span, span)
    each = seen.counts[rows] / of
    steps = seen.step_of[rows] - (of - 1 - number)
    return _Decodes(steps, seen.owner[rows], each, seen.context[rows] - 1.0 + number * each)


def _jobs(seen: _Seen, flights: Flights) -> _Jobs:
    """Rows of prompts, and of what was preempted."""
    jobs = np.flatnonzero(seen.first | seen.stalled)
    owner, stalled = seen.owner[jobs], seen.stalled[jobs]
    again = np.where(stalled, seen.context[jobs], 0.0)
    return _Jobs(
        owner,
        np.where(stalled, seen.before_s[jobs], flights.start_s[owner]),
        seen.step_of[jobs],
        np.where(stalled, again, flights.uncached_tokens[owner]),
        np.where(stalled, 0.0, np.nan_to_num(flights.cached_tokens[owner])),
        again,
        np.ones(len(jobs), dtype=bool),
        np.ones(len(jobs), dtype=bool),
    )


def _untimed(flights: Flights, end_s: Floats) -> tuple[_Decodes, _Jobs]:
    """The same of requests without times: their tokens evenly over the steps in which they came;
    where there is no first token, over those that so many tokens must have taken."""
    rows = np.flatnonzero([not times for times in flights.token_times])
    flows = flows_of(flights)
    last = len(end_s) - 1
    ready = np.minimum(np.searchsorted(end_s, flows.first_s[rows], side="left"), last)
    done = np.minimum(np.searchsorted(end_s, flows.end_s[rows], side="left"), last)
    there = (flows.end_s[rows] > 0.0) & (flows.start_s[rows] < end_s[-1])
    rows, ready, done = rows[there], ready[there], done[there]
    span = np.where(flows.steps[rows] > 0.0, done - ready, 0).astype(np.int64)
    at, number = np.repeat(np.arange(len(rows)), span), _within(span)
    each = flows.steps[rows][at] / np.maximum(span, 1)[at]
    decodes = _Decodes(
        ready[at] + 1 + number,
        rows[at],
        each,
        flights.prompt_tokens[rows][at] + number * each,
    )
    jobs = _Jobs(
        rows,
        flows.start_s[rows],
        ready.astype(np.int64),
        flights.uncached_tokens[rows],
        np.nan_to_num(flights.cached_tokens[rows]),
        np.zeros(len(rows)),
        flows.answered[rows],
        ~np.isnan(flights.first_s[rows]),
    )
    return decodes, jobs


def _events(flights: Flights, length_s: float) -> tuple[Floats, Floats, Ints, Floats]:
    """Of each token event: when, of how many tokens, of which flight, and tokens before it."""
    sizes = np.array([len(times) // 2 for times in flights.token_times], dtype=np.int64)
    total = 2 * int(sizes.sum())
    flat = np.fromiter(
        chain.from_iterable(times[: 2 * (len(times) // 2)] for times in flights.token_times),
        dtype=np.float64,
        count=total,
    )
    owner = np.repeat(np.arange(len(flights)), sizes)
    counts = np.maximum(1.0, flat[1::2])
    at_s = flights.arrived_s[owner] + flat[::2] * _US
    before = np.cumsum(counts) - counts
    starts = np.cumsum(sizes) - sizes
    ordinal = before - (before[starts[owner]] if len(owner) else before)
    kept = (at_s >= -_BEFORE_S) & (at_s <= length_s + _AFTER_S)
    return at_s[kept], counts[kept], owner[kept], ordinal[kept]


def _within(sizes: Ints) -> Ints:
    """0, 1, ... of each run of so many."""
    total = int(sizes.sum())
    starts = np.cumsum(sizes) - sizes
    return np.arange(total) - np.repeat(starts, sizes)


def _begins(flights: Flights, end_s: Floats) -> Floats:
    """Each step begins with the end of the one before, or when somebody came after none was there:
    then with the begin of the time in which somebody was."""
    order = np.argsort(flights.start_s, kind="stable")
    starts, ends = flights.start_s[order], np.maximum.accumulate(flights.end_s[order])
    fresh = np.concatenate(([True], starts[1:] > ends[:-1]))
    busy_from = starts[fresh]
    at = np.maximum(0, np.searchsorted(busy_from, end_s, side="left") - 1)
    before = np.concatenate(([-np.inf], end_s[:-1]))
    begin: Floats = np.minimum(end_s, np.maximum(before, busy_from[at]))
    return begin
