"""TraceRequest: one request of a trace, or of a made-up workload."""

from __future__ import annotations

import msgspec

from mileage.core.request import Endpoint, Priority

__all__ = ["TraceRequest"]


class TraceRequest(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What came, when, and what it took. A field that the trace does not have is None.

    `arrived_s` is since the start of the trace, and never decreases from one request to the next.
    `prompt_tokens` (at least 1) counts all of the prompt, text and media; `output_tokens` (at least
    1; 0 only for embeddings) is what the engine generated. `prefix_blocks` are content ids of the
    prompt's successive blocks of `block_tokens` tokens, the last one perhaps partial: prompts that
    share a prefix begin with the same ids. Empty: nothing is known to be shared.
    """

    arrived_s: float
    prompt_tokens: int
    output_tokens: int
    tenant: str = "default"
    model: str | None = None
    endpoint: Endpoint = "chat"
    stream: bool = True
    output_tokens_max: int | None = None
    prefix_blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    content_id: int | None = None
    """Equal for requests that are identical, and may share one generation."""
    conversation: int | None = None
    """Equal for the turns of one conversation."""
    adapter: str | None = None
    """Name of the LoRA adapter."""
    priority: Priority | None = None
    image_patches: int = 0
    audio_frames: int = 0
