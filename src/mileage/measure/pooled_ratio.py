"""Ratio of the arms' latencies over all requests of an A/B run, with its bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

import numpy as np

from mileage.measure.arm_slot import ArmSlot
from mileage.measure.bootstrap import (
    BootstrapRatio,
    bootstrap_mean_ratio,
    bootstrap_quantile_ratio,
)
from mileage.measure.record_latency import Floats, gaps_of, latencies

__all__ = ["PooledLatency", "pooled_ratio"]

PooledLatency = Literal["ttft_s", "itl_s", "tpot_s", "e2e_s"]


def pooled_ratio(
    slots: Sequence[ArmSlot],
    latency: PooledLatency,
    q: float | None,
    *,
    random: Random,
    resamples: int = 2000,
) -> BootstrapRatio | None:
    """b's quantile `q` (None: mean) / a's, over the requests of all blocks together.

    Latencies of requests scheduled inside their slot's window that ended well, by the definitions
    of `run_figures`; of `itl_s`, each gap counts. Blocks without both arms are left out. None with
    less than two blocks and without values. The interval is a plain 95 % one: it knows nothing of
    looks and of other metrics, and the verdict is not read from it.
    """
    by_arm: dict[str, dict[int, Floats]] = {"a": {}, "b": {}}
    for slot in slots:
        by_arm[slot.arm][slot.block] = _values(slot, latency)
    blocks = sorted(by_arm["a"].keys() & by_arm["b"].keys())
    if len(blocks) < 2:
        return None
    a, b = ([arm[block] for block in blocks] for arm in (by_arm["a"], by_arm["b"]))
    if q is None:
        return bootstrap_mean_ratio(a, b, random=random, resamples=resamples)
    return bootstrap_quantile_ratio(a, b, q, random=random, resamples=resamples)


def _values(slot: ArmSlot, latency: PooledLatency) -> Floats:
    own = [
        r
        for r in slot.records
        if r.outcome == "ok"
        and r.phase == "measured"
        and slot.start_s <= r.scheduled_s < slot.end_s
    ]
    if latency == "itl_s":
        gaps = gaps_of(own)
        return np.concatenate((gaps.gaps_s, np.zeros(gaps.zeros)))
    columns = latencies(own)
    values = {"ttft_s": columns.ttft_s, "tpot_s": columns.tpot_s, "e2e_s": columns.e2e_s}[latency]
    return values[~np.isnan(values)]
