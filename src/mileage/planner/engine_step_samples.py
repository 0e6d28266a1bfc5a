"""engine_step_samples(): what an engine itself told of its steps, as samples of step times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mileage.costmodel.fitted import StepSample
from mileage.ledger.engine_step import EngineStep

__all__ = ["engine_step_samples"]

_NS: Final = 1e-9


def engine_step_samples(steps: Iterable[EngineStep]) -> Iterator[StepSample]:
    """Of steps that computed something, in their order."""
    for step in steps:
        decoding = [use for use in step.uses if use.decode_tokens]
        prefill = sum(use.prefill_tokens for use in step.uses)
        if not (decoding or prefill):
            continue
        yield StepSample(
            running=float(len(decoding)),
            kv_tokens=float(sum(use.context_tokens for use in decoding)),
            prefill_tokens=float(prefill),
            step_s=step.duration_ns * _NS,
        )
