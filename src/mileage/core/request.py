"""Request: what the policies know of one request when it arrives."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Endpoint", "Request"]

Endpoint = Literal["chat", "completions", "embeddings", "responses", "messages"]


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One inference request, as it arrived; holds no prompt text.

    `prompt_tokens_estimate` comes from the body's size (the engine's own count arrives with its
    usage); `prefix_key` is a hash of tenant, model and the head of the prompt, equal for prompts
    that can share a prefix cache, None where there is no text to hash.
    """

    id: int
    tenant: str
    model: str
    endpoint: Endpoint
    stream: bool
    arrived_s: float
    prompt_tokens_estimate: int
    output_tokens_max: int | None = None
    prefix_key: int | None = None
