"""The attribution's formula with the simulator's own step table in place of a fitted model."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from benchmarks.support.attribution_cases import Run
from benchmarks.support.policy_cells import table_of
from mileage.costmodel.step_table import StepLine
from mileage.sim.step_log import StepPart, Stretch

__all__ = ["seconds_by_table"]


def seconds_by_table(run: Run) -> dict[str, float]:
    """Busy seconds of each tenant by what each thing really costs, the attention of prompts
    included, which grows with the square of their length; the fixed part of a step in equal parts
    per request. Of what is a curve in the table, the number of tokens, each costs the mean slope
    from none to all of them: the Aumann-Shapley price of a sum."""
    lines = table_of(run.case.on).lines
    assert len(lines) == 1, "a pairing whose steps are the larger of two lines"
    tenants = [timeline.tenant for timeline in run.timelines]
    found: dict[str, float] = defaultdict(float)
    for stretch in run.stretches:
        costs = _costs(lines[0], stretch)
        took_s = float(stretch.times_s.sum())
        # Noise is everybody's, in proportion.
        scale = took_s / float(costs.sum())
        for part, cost in zip(stretch.parts, (costs * scale).tolist(), strict=True):
            found[tenants[part.request_id - 1]] += cost
    return dict(found)


def _costs(line: StepLine, stretch: Stretch) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of each part, over all steps of the stretch."""
    parts, steps = stretch.parts, len(stretch.times_s)
    decoding = sum(part.decode_tokens > 0 for part in parts)
    prompt_tokens = sum(part.prefill_tokens for part in parts)
    if prompt_tokens:
        curve, count, request_s = line.mixed_s, decoding + prompt_tokens, line.request_s
    else:
        curve, count, request_s = line.decode_s, decoding, 0.0
    token_s = (curve[count] - curve[0]) / count
    kv_s = line.kv_token_s(decoding)

    def cost(part: StepPart) -> float:
        if part.decode_tokens:
            kv = part.context_tokens + (steps - 1) / 2
            return token_s + request_s + kv_s * kv
        chunk = part.prefill_tokens
        return token_s * chunk + line.pair_s * chunk * (part.context_tokens + (chunk + 1) / 2)

    return steps * (curve[0] / len(parts) + np.array([cost(part) for part in parts]))
