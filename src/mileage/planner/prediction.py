"""prediction_errors(): how far off a simulation is from what was seen of the same requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.costmodel.pipeline_fill import PipelineFill
from mileage.costmodel.served import ServedRequest
from mileage.sim.node import ReplicaSpec
from mileage.sim.outcome import OK
from mileage.sim.simulation import Simulation
from mileage.workload.trace_request import TraceRequest

__all__ = ["PredictionErrors", "prediction_errors"]

_ALONE: Final = ControlConfig(governor=GovernorConfig(mode="off"))


class PredictionErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of |predicted - measured| / measured, over requests; None where nothing was seen."""

    requests: int
    """That were compared."""
    ttft_ratio: float | None
    itl_ratio: float | None
    """Of a request's mean gap between tokens."""


def prediction_errors(
    served: Sequence[ServedRequest],
    spec: ReplicaSpec,
    *,
    since_s: float = -math.inf,
    first_token_s: float = 0.0,
    fill: PipelineFill | None = None,
) -> PredictionErrors:
    """Simulate them on that engine, as they were sent, and compare those sent from `since_s` on.

    What an engine found of prompts in its cache is on record: prompts are simulated without it.
    `first_token_s`: what a first token takes beside steps; `fill`: what prompts wait for stages of
    a pipeline. Requests that the simulated engine has no room for are left out.
    """
    ordered = sorted(served, key=lambda each: each.dispatched_s)
    begun_s = ordered[0].dispatched_s if ordered else 0.0
    requests = [
        TraceRequest(
            arrived_s=each.dispatched_s - begun_s,
            prompt_tokens=each.computed_tokens,
            output_tokens=each.output_tokens,
            model=spec.models[0],
        )
        for each in ordered
    ]
    out = Simulation([spec], control=_ALONE).run(requests).outcomes
    ttft, itl, compared = [], [], 0
    for row, each in enumerate(ordered):
        if out.status[row] != OK or each.dispatched_s < since_s or each.first_s is None:
            continue
        compared += 1
        predicted_s = out.ttft_s[row] + first_token_s
        if fill is not None:
            predicted_s += fill.seconds(each.computed_tokens, 0)
        seen_s = each.first_s - each.dispatched_s
        if seen_s > 0.0:
            ttft.append(abs(predicted_s / seen_s - 1.0))
        if each.output_tokens > 1 and each.last_s > each.first_s:
            gap_s = (each.last_s - each.first_s) / (each.output_tokens - 1)
            itl.append(abs(out.itl_mean_s[row] / gap_s - 1.0))
    return PredictionErrors(requests=compared, ttft_ratio=_median(ttft), itl_ratio=_median(itl))


def _median(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return float(np.median(known)) if known else None
