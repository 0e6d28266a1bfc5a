"""spread(): arrivals that share a timestamp, over the time that the timestamp stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Literal

from msgspec.structs import replace

from mileage.core.errors import TraceError
from mileage.workload.trace_request import TraceRequest

__all__ = ["spread"]

_GROUP_MAX = 1_000_000


def spread(
    requests: Iterable[TraceRequest],
    how: Literal["even", "random"],
    *,
    step_max_s: float,
    seed: int = 0,
    path: str = "trace",
) -> Iterator[TraceRequest]:
    """Requests of one timestamp at moments from it on and before the next, at most `step_max_s`.

    Of n requests the i-th arrives at i/n of that time (even), or they arrive at n ordered uniform
    moments (random: what a Poisson process is, given their number). They stay in their order, and
    their number in each step is what it was. Memory: the requests of one timestamp; TraceError
    beyond a million.
    """
    rng = Random(seed)  # noqa: S311 -- a workload, not secrets
    group: list[TraceRequest] = []
    for request in requests:
        if group and request.arrived_s != group[0].arrived_s:
            step_s = min(step_max_s, request.arrived_s - group[0].arrived_s)
            yield from _placed(group, step_s, how, rng)
            group.clear()
        group.append(request)
        if len(group) > _GROUP_MAX:
            raise TraceError(path, 0, f"has over {_GROUP_MAX} requests with one timestamp")
    yield from _placed(group, step_max_s, how, rng)


def _placed(
    group: list[TraceRequest], step_s: float, how: str, rng: Random
) -> Iterator[TraceRequest]:
    count = len(group)
    if how == "even":
        shares = [i / count for i in range(count)]
    else:
        shares = sorted(rng.random() for _ in range(count))
    for request, share in zip(group, shares, strict=True):
        if share:
            yield replace(request, arrived_s=request.arrived_s + share * step_s)
        else:
            yield request
