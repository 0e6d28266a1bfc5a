"""Step shares: each step's time over the requests in it, by what they used of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mileage.ledger.columns import Floats, Ints, sums
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.step_model import StepModel
from mileage.ledger.whole_parts import whole_parts

__all__ = ["Ratios", "StepUses", "UseParts", "shares_of_steps", "uses_of", "weigh_uses"]

Ratios = tuple[float, float, float]
"""Of computing, memory and interconnect; they sum to 1."""


@dataclass(frozen=True, slots=True)
class StepUses:
    """What requests had of steps, one row each, sorted by step; `steps` counts steps from 0."""

    steps: Ints
    requests: Ints
    """Ids, or any other numbers: they only pass through."""
    prefill_tokens: Floats
    decode_tokens: Floats
    context_tokens: Floats
    recomputed_tokens: Floats

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class UseParts:
    """The weight of each use among those of its step, and how it is made up."""

    weights: Floats
    prefill_ratio: Floats
    """For the prompt; the rest is for the answer."""
    recomputed_ratio: Floats
    """Of what is for the prompt: what was computed before."""


def uses_of(steps: Sequence[EngineStep]) -> StepUses:
    """The uses of the steps as columns; negative figures count as 0."""
    rows = [
        (index, use.request_id, use.prefill_tokens, use.decode_tokens, use.context_tokens,
         use.recomputed_tokens)
        for index, step in enumerate(steps)
        for use in step.uses
    ]  # fmt: skip
    columns = np.array(rows, dtype=np.int64).reshape(-1, 6)
    tokens = np.maximum(columns[:, 2:], 0).astype(np.float64)
    return StepUses(columns[:, 0], columns[:, 1], *(tokens[:, i] for i in range(4)))


def weigh_uses(
    uses: StepUses, count: int, model: StepModel | None, ratios: Ratios, decode_cost_tokens: float
) -> UseParts:
    """Weights of the uses of `count` steps.

    A step is shared by each of three dimensions, and the shares are added up in the ratios.
    Computing: with a model, what a step costs whatever is in it in equal parts, for every request
    there needs it, and each one's tokens by what these add to the step; without, its prompt tokens,
    and tokens of answers by what they cost in these. Memory: the tokens of its context that are
    read, or held while others compute. Interconnect: its tokens, whose activations it carries.
    """
    prefill, decode, at = uses.prefill_tokens, uses.decode_tokens, uses.steps
    prompt, answer = prefill, decode_cost_tokens * decode
    if model is not None:
        kv = np.where(decode > 0.0, uses.context_tokens, 0.0)
        present = np.bincount(at, minlength=count)
        costs = model.costs(*(sums(each, at, count) for each in (decode, kv, prefill)))
        fixed = costs.fixed_s[at] / present[at]
        both = np.maximum(prefill + decode, 1.0)
        prompt = costs.prefill_s[at] * prefill + fixed * prefill / both
        answer = costs.decode_s[at] * decode + costs.kv_s[at] * kv + fixed * decode / both
    tokens = prefill + decode
    weights = np.zeros(len(uses))
    for ratio, amount in zip(
        ratios, (prompt + answer, uses.context_tokens + tokens, tokens), strict=True
    ):
        if ratio > 0.0:
            weights += ratio * _part_of_step(amount, at, count)
    total = prompt + answer
    recomputed = np.minimum(uses.recomputed_tokens, prefill)
    return UseParts(
        weights=weights,
        prefill_ratio=np.where(total > 0.0, prompt / np.where(total > 0.0, total, 1.0), 0.0),
        recomputed_ratio=recomputed / np.maximum(prefill, 1.0),
    )


def shares_of_steps(
    uses: StepUses,
    gpu_ns: Ints,
    model: StepModel | None,
    ratios: Ratios,
    decode_cost_tokens: float,
) -> tuple[Ints, Ints, Ints]:
    """Of the GPU-ns of each step (0 or more) the part of each use; of that the part for the prompt;
    and of that the part for what was computed before. The parts of a step sum to its GPU-ns
    exactly; those of a step without uses are nobody's.
    """
    parts = weigh_uses(uses, len(gpu_ns), model, ratios, decode_cost_tokens)
    shares = whole_parts(gpu_ns, uses.steps, parts.weights)
    prefill = np.floor(shares * parts.prefill_ratio).astype(np.int64)
    recomputed = np.floor(prefill * parts.recomputed_ratio).astype(np.int64)
    return shares, prefill, recomputed


def _part_of_step(amounts: Floats, steps: Ints, count: int) -> Floats:
    """Of each use among those of its step; equal parts where none has any."""
    total = sums(amounts, steps, count)[steps]
    sizes = np.bincount(steps, minlength=count)[steps]
    part: Floats = np.where(total > 0.0, amounts / np.where(total > 0.0, total, 1.0), 1.0 / sizes)
    return part
