"""EngineStep: one step of an engine, and what each request had of it."""

from __future__ import annotations

import msgspec

__all__ = ["EngineStep", "StepUse"]


class StepUse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one request had computed in one step."""

    request_id: int
    prefill_tokens: int
    """Tokens of its prompt that were computed: those out of a prefix cache are none of them."""
    decode_tokens: int
    """Tokens that came out, and those that were tried beside them (speculative decoding)."""
    context_tokens: int
    """Tokens of it in the KV cache when the step began: what attention read of it."""
    recomputed_tokens: int = 0
    """Of `prefill_tokens`: those that were computed once before and lost by a preemption."""


class EngineStep(msgspec.Struct, frozen=True, array_like=True):
    """A step: everything that a replica's GPUs computed between two moments.

    Steps of one replica do not overlap. `uses` has each request at most once; a step without any
    is warm-up or idle polling of the engine. Where `lost_steps` is not 0, it is no step, but a time
    in which there were so many that could not be told.
    """

    replica: str
    started_at_utc_ns: int
    duration_ns: int
    uses: tuple[StepUse, ...] = ()
    lost_steps: int = 0
