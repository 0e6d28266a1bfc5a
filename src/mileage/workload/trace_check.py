"""fault_of(): what is wrong with a request that somebody wrote into a trace."""

from __future__ import annotations

from typing import Final

from mileage.workload.trace_request import TraceRequest

__all__ = ["ARRIVED_MAX_S", "TOKENS_MAX", "fault_of"]

TOKENS_MAX: Final = 999_999_999
"""Of one request: far beyond any context, and no number that overflows where it is summed."""
ARRIVED_MAX_S: Final = 1e11
"""3,000 years: what is later is a time in another unit."""

_TEXTS: Final = ("tenant", "model", "adapter")
_INT64: Final = 1 << 63
_COUNTS: Final = (
    ("prompt_tokens", 1),
    ("output_tokens", 0),
    ("block_tokens", 0),
    ("image_patches", 0),
    ("audio_frames", 0),
)


def fault_of(request: TraceRequest) -> str | None:
    """The field that cannot be, and what was expected; None where all is as TraceRequest says."""
    if not 0.0 <= request.arrived_s <= ARRIVED_MAX_S:
        return f"arrived_s: got {request.arrived_s!r}, expected seconds, 0..{ARRIVED_MAX_S:g}"
    for name, low in _COUNTS:
        value = getattr(request, name)
        if not low <= value <= TOKENS_MAX:
            return f"{name}: got {value}, expected {low}..{TOKENS_MAX}"
    if not request.output_tokens and request.endpoint != "embeddings":
        return "output_tokens: got 0, expected at least 1 where the endpoint is not embeddings"
    most = request.output_tokens_max
    if most is not None and not 1 <= most <= TOKENS_MAX:
        return f"output_tokens_max: got {most}, expected 1..{TOKENS_MAX}"
    for name in _TEXTS:
        if getattr(request, name) == "":
            return f"{name}: got '', expected a name or nothing"
    for name in ("content_id", "conversation"):
        number = getattr(request, name)
        if number is not None and not -_INT64 <= number < _INT64:
            return f"{name}: got {number}, expected a number of 64 bits"
    return _blocks_fault(request)


def _blocks_fault(request: TraceRequest) -> str | None:
    blocks, size = request.prefix_blocks, request.block_tokens
    if not blocks:
        return None
    if size < 1:
        return f"block_tokens: got {size}, expected at least 1 beside prefix_blocks"
    most = -(-request.prompt_tokens // size)
    if len(blocks) > most:
        return (
            f"prefix_blocks: got {len(blocks)}, expected at most {most}: {size} tokens each,"
            f" of {request.prompt_tokens}"
        )
    if min(blocks) < -_INT64 or max(blocks) >= _INT64:
        return "prefix_blocks: expected numbers of 64 bits"
    return None
