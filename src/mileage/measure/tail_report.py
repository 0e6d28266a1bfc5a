"""TailReport: what the slowest requests' latency is made of, beside that of typical ones."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.measure.tail_stage import Role, Stage

__all__ = [
    "Latency",
    "Neighbour",
    "StageShare",
    "TailOptions",
    "TailReport",
    "TailSlice",
    "Waterfall",
]

Latency: TypeAlias = Literal["e2e", "ttft"]


class TailOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are the tail, and of which latency."""

    latency: Latency = "e2e"
    share_ratio: float = 0.001
    """The slowest share: 0.001 is what is beyond P99.9."""
    requests_min: int = 5
    """So many requests at least, though never more than a tenth of all."""
    waterfalls: int = 10
    """How many of the slowest are told one by one."""

    def __post_init__(self) -> None:
        require_range("share_ratio", self.share_ratio, 0.0, 0.5)
        if self.requests_min < 1:
            raise ConfigError("requests_min", self.requests_min, "at least 1")
        if self.waterfalls < 0:
            raise ConfigError("waterfalls", self.waterfalls, "at least 0")


class StageShare(msgspec.Struct, frozen=True, kw_only=True):
    """One stage over the slowest requests and over typical ones: seconds per request on average.

    `excess_s` is what the slowest have more than typical ones; over all stages it sums to the
    difference of their latencies.
    """

    stage: Stage
    role: Role | None
    """The process that a cause of the host belongs to; None for a plain stage."""
    title: str
    tail_s: float
    tail_ratio: float
    typical_s: float
    typical_ratio: float
    excess_s: float
    excess_ratio: float | None
    """Its part of the difference; None where the slowest are no slower."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Another request whose prompt was computed meanwhile."""

    index: int
    prompt_tokens: int | None
    overlap_s: float


class TailSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of one request's latency; seconds since it was scheduled."""

    stage: Stage
    role: Role | None
    start_s: float
    end_s: float
    running: int | None = None
    """Streams of the target that were being generated, itself included; told of stalls."""
    prefills: tuple[Neighbour, ...] = ()
    """Prompts computed meanwhile, the one that overlapped most first; told of stalls and waits."""


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """One of the slowest requests, moment by moment; the slices leave nothing out."""

    index: int
    scheduled_s: float
    latency_s: float
    prompt_tokens: int | None
    output_tokens: int | None
    request_id: str | None
    slices: tuple[TailSlice, ...]


class TailReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer. `first` is None where there is no tail, or too few requests to tell."""

    latency: Latency
    requests: int
    """That ended well and were measured."""
    tail_requests: int
    typical_requests: int
    threshold_s: float
    """The latency of the fastest request of the tail."""
    tail_mean_s: float
    typical_mean_s: float
    first: StageShare | None
    """The stage with the largest excess."""
    verdict: str
    evidence: tuple[str, ...]
    stages: tuple[StageShare, ...]
    """Those with any time, the largest excess first."""
    waterfalls: tuple[Waterfall, ...]
    left_out: dict[str, int]
    """Requests that did not end well, by outcome: they have no latency."""
    joined: int
    """Requests of the tail and the typical that were joined with a gateway's record."""

    def __post_init__(self) -> None:
        assert not math.isnan(self.tail_mean_s)
