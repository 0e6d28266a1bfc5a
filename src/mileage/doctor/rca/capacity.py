"""Capacity: how many replicas the load needs, by what each has served in time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from mileage.doctor.rca.anomalies import Anomaly, Scored
from mileage.doctor.rca.series import POINTS_MIN
from mileage.doctor.rca.trouble import is_bad

__all__ = ["Capacity", "capacity_of"]

_QUANTILE: Final = 0.95
_LOADS: Final = ("output_tokens_per_s", "requests_per_s")


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas that the load needs. `per_replica` is the 95th percentile of what the busiest one
    served while nothing was wrong with its latency: a lower bound of what one can, so that fewer
    than `needed` may do."""

    signal: str
    load: float
    """95th percentile over the time that was searched, of all replicas together."""
    load_usual: float
    per_replica: float
    replicas: int
    needed: int


def capacity_of(
    scored: Iterable[Scored], anomalies: Iterable[Anomaly], first: int
) -> Capacity | None:
    """The capacity; None where no replica's load and latency are known."""
    every = [each for each in scored if each.series.node.startswith("replica:")]
    slow: dict[str, list[Anomaly]] = {}
    for anomaly in anomalies:
        if anomaly.kind in ("latency", "errors") and is_bad(anomaly):
            slow.setdefault(anomaly.node, []).append(anomaly)
    timed = {each.series.node for each in every if each.series.kind == "latency"}
    for signal in _LOADS[::-1]:
        loads = [each for each in every if each.series.name == signal]
        loads = [each for each in loads if each.series.node in timed]
        if loads:
            return _capacity(signal, loads, slow, first)
    return None


def _capacity(
    signal: str, loads: list[Scored], slow: dict[str, list[Anomaly]], first: int
) -> Capacity | None:
    served: list[float] = []
    for each in loads:
        well = np.isfinite(each.values)
        for anomaly in slow.get(each.series.node, ()):
            well[anomaly.start : anomaly.end] = False
        if well.sum() >= POINTS_MIN:
            served.append(float(np.quantile(each.values[well], _QUANTILE)))
    total = np.nansum([each.values for each in loads], axis=0)
    if not served or not len(total[first:]):
        return None
    per_replica = max(served)
    load = float(np.quantile(total[first:], _QUANTILE))
    if per_replica <= 0.0 or load <= 0.0:
        return None
    return Capacity(
        signal=signal,
        load=load,
        load_usual=float(np.median(total[:first] if first >= POINTS_MIN else total)),
        per_replica=per_replica,
        replicas=len(loads),
        needed=max(1, math.ceil(load / per_replica - 1e-9)),
    )
