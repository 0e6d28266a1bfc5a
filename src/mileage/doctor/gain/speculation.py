"""Speculative decoding as the simulator takes it, from what facts tell of drafts."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.architecture import Architecture
from mileage.costmodel.efficiency_table import FITTED
from mileage.costmodel.gpu import Gpu
from mileage.doctor.evidence import Evidence
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.sim.engine_features import SpeculationConfig

__all__ = ["acceptance_of", "speculation_of"]

_TOKENS_MAX: Final = 16
_ROUNDS: Final = 50
_BYTES: Final = 2.0
"""Of a weight of a draft: those are in half precision."""


def speculation_of(
    evidence: Evidence, model: Architecture, card: Gpu
) -> SpeculationConfig | Unsimulated | None:
    """None: nothing is drafted. A draft reads its weights once for each token of a step."""
    method, number = evidence.text("speculative.method"), evidence.number("speculative.num_tokens")
    if method is None and not number.known:
        return None
    tokens = number.value
    if not tokens.bounded or not 1 <= tokens.middle <= _TOKENS_MAX:
        return Unsimulated("how many tokens are drafted is not known")
    drafted = round(tokens.middle)
    ratio = evidence.number("spec_acceptance_ratio").value
    if not ratio.bounded:
        return Unsimulated("which share of the drafted tokens is accepted is not known")
    weights_b = _draft_weights_b(evidence, method, model)
    if weights_b is None:
        return Unsimulated("how large the draft is is not known")
    read_s = weights_b * _BYTES / (card.bandwidth_gb_per_s * FITTED.half_memory_ratio)
    return SpeculationConfig(
        draft_tokens=drafted,
        acceptance_ratio=acceptance_of(min(max(ratio.middle, 0.0), 1.0), drafted),
        draft_step_s=read_s,
    )


def acceptance_of(accepted_ratio: float, drafted: int) -> float:
    """Probability that a token is accepted where all before it were, from the share of all drafted
    tokens that engines count: a + a^2 + ... + a^k = k times that share."""
    wanted = accepted_ratio * drafted
    low, high = 0.0, 1.0
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if sum(middle**power for power in range(1, drafted + 1)) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _draft_weights_b(evidence: Evidence, method: str | None, model: Architecture) -> float | None:
    """Weights in 1e9 that are read for a drafted token: none, a draft model's, or one layer's."""
    if method == "ngram":
        return 0.0
    stated = evidence.number("speculative.draft_params_b").value
    if stated.bounded:
        return stated.middle
    if method in ("eagle", "mtp") and not model.experts:
        return model.parameters / model.layers / 1e9
    return None
