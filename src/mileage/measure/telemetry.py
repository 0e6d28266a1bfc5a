"""Telemetry: what was seen of GPUs, host and load in a window, and how it comes together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from statistics import median
from typing import TypeVar

import msgspec

from mileage.measure.gpu_sample import GpuSample
from mileage.measure.serving_host import HostMoment, LoadMoment

__all__ = ["Moment", "Telemetry", "moments_of"]

T = TypeVar("T")
_AGE_MAX_S = 3.0
"""What is known of host and load holds for so long."""
_USUAL_MIN = 3
"""Latencies from which the usual one is told."""


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen in a window, each in order of time, on one clock. `missing`: why not more.

    `zero_at_utc_ns` is the time of day of that clock's 0, nanoseconds since 1970; None: not known.
    """

    samples: tuple[GpuSample, ...] = ()
    hosts: tuple[HostMoment, ...] = ()
    loads: tuple[LoadMoment, ...] = ()
    missing: dict[str, str] = {}
    zero_at_utc_ns: int | None = None


class Moment(msgspec.Struct, frozen=True, gc=False):
    """One look at one GPU, with what was known of its host and its load then."""

    sample: GpuSample
    host: HostMoment | None = None
    load: LoadMoment | None = None
    latency_ratio: float | None = None
    """The gap between tokens over its usual length."""


def moments_of(
    samples: Sequence[GpuSample], telemetry: Telemetry, *, link_full_min: float
) -> list[Moment]:
    """Each look at a GPU with the latest of host and load; and what latency is against its usual.

    The usual gap between tokens is the median of those seen while the links were used up to
    `link_full_min` of their maximum: with links that are full all the time there is none.
    """
    host_times = [host.at_s for host in telemetry.hosts]
    load_times = [load.at_s for load in telemetry.loads]
    found = []
    for sample in samples:
        host = _latest(telemetry.hosts, host_times, sample.at_s)
        load = _latest(telemetry.loads, load_times, sample.at_s)
        found.append(Moment(sample, host, load))
    quiet = {
        moment.load.at_s: moment.load.itl_s
        for moment in found
        if moment.load is not None
        and moment.load.itl_s is not None
        and (ratio := moment.sample.link[1]) is not None
        and ratio <= link_full_min
    }
    if len(quiet) < _USUAL_MIN:
        return found
    usual_s = median(quiet.values())
    return [
        msgspec.structs.replace(moment, latency_ratio=moment.load.itl_s / usual_s)
        if usual_s > 0.0 and moment.load is not None and moment.load.itl_s is not None
        else moment
        for moment in found
    ]


def _latest(looks: Sequence[T], times: Sequence[float], at_s: float) -> T | None:
    """The last look at or before, if it is not too old; else the first one soon after."""
    place = bisect_right(times, at_s)
    if place and at_s - times[place - 1] <= _AGE_MAX_S:
        return looks[place - 1]
    if place < len(times) and times[place] - at_s <= _AGE_MAX_S:
        return looks[place]
    return None
