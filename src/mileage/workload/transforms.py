"""Transforms of traces: windows, other rates, samples and mixes, one request after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from random import Random

import msgspec
from msgspec.structs import replace

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.workload.mixing import mixed64
from mileage.workload.trace_request import TraceRequest

__all__ = ["TraceView", "mix", "sample", "scale_rate", "view", "window"]

_ID_BITS = (1 << 63) - 1
_arrived_s = attrgetter("arrived_s")


class TraceView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a trace, and how fast. Raises ConfigError. It applies from top to bottom."""

    tenants: tuple[str, ...] = ()
    """Only these; empty: all."""
    models: tuple[str, ...] = ()
    start_s: float = 0.0
    duration_s: float | None = None
    """Arrivals from `start_s` on for so long; they then begin at 0."""
    sample_ratio: float = 1.0
    """The share of requests (of conversations, where there are any) that is kept, at random."""
    seed: int = 0
    rate_scale: float = 1.0
    """So many times as many arrivals per second: times are divided by it."""
    head: int | None = None
    """At most so many requests."""

    def __post_init__(self) -> None:
        require_at_least("start_s", self.start_s, 0.0)
        if self.duration_s is not None:
            require_positive("duration_s", self.duration_s)
        if not 0.0 < self.sample_ratio <= 1.0:
            raise ConfigError("sample_ratio", self.sample_ratio, "above 0, up to 1")
        require_range("rate_scale", self.rate_scale, 1e-9, 1e9)
        if self.head is not None:
            require_at_least("head", self.head, 1)


def view(requests: Iterable[TraceRequest], how: TraceView) -> Iterator[TraceRequest]:
    """The part of the trace, as it is asked for."""
    if how.tenants:
        kept = frozenset(how.tenants)
        requests = (r for r in requests if r.tenant in kept)
    if how.models:
        models = frozenset(how.models)
        requests = (r for r in requests if r.model in models)
    if how.start_s or how.duration_s is not None:
        requests = window(requests, how.start_s, how.duration_s)
    if how.sample_ratio < 1.0:
        requests = sample(requests, how.sample_ratio, how.seed)
    if how.rate_scale != 1.0:
        requests = scale_rate(requests, how.rate_scale)
    return islice(requests, how.head)


def window(
    requests: Iterable[TraceRequest], start_s: float, duration_s: float | None
) -> Iterator[TraceRequest]:
    """Arrivals from `start_s` on, up to `duration_s` later; `start_s` becomes 0."""
    end_s = None if duration_s is None else start_s + duration_s
    for request in requests:
        if request.arrived_s < start_s:
            continue
        if end_s is not None and request.arrived_s >= end_s:
            return
        yield replace(request, arrived_s=request.arrived_s - start_s) if start_s else request


def scale_rate(requests: Iterable[TraceRequest], factor: float) -> Iterator[TraceRequest]:
    """`factor` times as many arrivals per second, of the same requests in the same pattern."""
    return (replace(request, arrived_s=request.arrived_s / factor) for request in requests)


def sample(requests: Iterable[TraceRequest], ratio: float, seed: int) -> Iterator[TraceRequest]:
    """Each request with probability `ratio`, independently; a conversation stays whole or goes.

    Of a Poisson process this is one of `ratio` times its rate.
    """
    rng = Random(seed)  # noqa: S311 -- a workload, not secrets
    salt = rng.getrandbits(64) | 1
    bound = int(ratio * 2**64)
    for request in requests:
        talk = request.conversation
        chance = rng.getrandbits(64) if talk is None else mixed64(talk, salt)
        if chance < bound:
            yield request


def mix(traces: Sequence[Iterable[TraceRequest]]) -> Iterator[TraceRequest]:
    """Several traces as one, by arrival; what they share stays within each of them.

    Traces number their blocks, contents and conversations as they like: those of all but the first
    are given other numbers, so that equal ones of two traces do not mean the same.
    """
    return merge(*(_apart(trace, index) for index, trace in enumerate(traces)), key=_arrived_s)


def _apart(requests: Iterable[TraceRequest], index: int) -> Iterator[TraceRequest]:
    if not index:
        yield from requests
        return
    mask = mixed64(index) & _ID_BITS
    for request in requests:
        blocks, content, talk = request.prefix_blocks, request.content_id, request.conversation
        if not blocks and content is None and talk is None:
            yield request
            continue
        yield replace(
            request,
            prefix_blocks=tuple([block ^ mask for block in blocks]),
            content_id=None if content is None else content ^ mask,
            conversation=None if talk is None else talk ^ mask,
        )
