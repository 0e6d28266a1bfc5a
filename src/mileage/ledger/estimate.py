"""Estimate: what each flight had of the time of a window, as far as its records tell."""

from __future__ import annotations

from dataclasses import dataclass

from mileage.ledger.columns import Floats

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One row per flight, as weights: what they sum to need not be all of the busy time."""

    weights: Floats
    prefill: Floats
    """Of `weights`: for the prompt."""
    recomputed: Floats
    """Of `prefill`: for what was lost by a preemption."""
    error_ratio: float
    """The true value is not off by more than this part of a share and `error_s` together, in 19 of
    20 windows."""
    error_s: float
    saturated: bool = False
