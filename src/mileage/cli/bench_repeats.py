"""Points that are measured several times: figures with intervals, and the order of the runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from mileage.cli.bench_figures import value_at
from mileage.measure.distributions import t_critical

__all__ = ["Repeated", "point_faults", "repeated", "repeated_figures", "run_orders"]

_LEVEL: Final = 0.95
_FAILED_MAX: Final = 0.01
"""Of a point whose figures stand for what an endpoint can do: failed requests are quick ones."""


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over the runs of a point. The interval is Student's of 95 %, of their mean; None
    with a single run. Runs of one point are apart in time, with others between them."""

    mean: float
    low: float | None
    high: float | None
    runs: tuple[float, ...]


def repeated(values: Sequence[float | None]) -> Repeated | None:
    """Of a figure's values in all runs; None where a run has none: the rest would be a choice."""
    known = tuple(value for value in values if value is not None)
    if not known or len(known) < len(values):
        return None
    mean = statistics.fmean(known)
    if len(known) < 2:
        return Repeated(mean=mean, low=None, high=None, runs=known)
    half = t_critical(1.0 - _LEVEL, len(known) - 1) * statistics.stdev(known)
    half /= math.sqrt(len(known))
    return Repeated(mean=mean, low=mean - half, high=mean + half, runs=known)


def repeated_figures(
    documents: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> dict[str, Repeated | None]:
    """Figures of a point by their place in the runs' documents."""
    return {key: repeated([value_at(each, key) for each in documents]) for key in keys}


def point_faults(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why a point's figures say nothing about the endpoint; empty: they do."""
    found: dict[str, None] = {}
    for each in documents:
        if each["error"] is not None:
            found[str(each["error"])] = None
            continue
        sent, ok = each["requests"], each["requests_ok"]
        failed = sum(each["requests_failed"].values())
        if each["generator"]["limited"]:
            found[f"the load generator was the limit: {each['generator']['reason']}"] = None
        if not sent:
            found["no request was due in the measured time"] = None
        elif not ok:
            found["no request was answered well"] = None
        elif failed > _FAILED_MAX * sent:
            found[f"more than {_FAILED_MAX:.0%} of the requests failed"] = None
    return list(found)


def run_orders(groups: Sequence[Sequence[int]], repeats: int, seed: int) -> list[list[int]]:
    """The order of the points in each pass: groups together, each order drawn.

    Each second pass is the one before it backwards, so that what drifts in the course of both
    weighs on all points alike. The first pass is as given: from light to heavy, where that is so.
    """
    rng = Random(f"orders of points {seed}")  # noqa: S311 -- no secret
    orders: list[list[list[int]]] = []
    for number in range(repeats):
        if number % 2:
            orders.append([list(reversed(group)) for group in reversed(orders[-1])])
            continue
        order = [list(group) for group in groups]
        if number:
            rng.shuffle(order)
            for group in order:
                rng.shuffle(group)
        orders.append(order)
    return [[point for group in order for point in group] for order in orders]
