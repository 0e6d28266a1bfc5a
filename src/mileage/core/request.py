"""Request: what the policies know of one request when it arrives."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Endpoint", "Modality", "Priority", "Request"]

Endpoint = Literal["chat", "completions", "embeddings", "responses", "messages"]
Priority = Literal["high", "normal", "low"]
Modality = Literal["text", "image", "audio"]


class Request(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One inference request, as it arrived; holds no prompt text.

    `prompt_tokens_estimate` comes from the body's size, or from the model's tokenizer (the engine's
    own count arrives with its usage), and counts text only; `prompt_tokens_max` is an upper bound
    of it, None where unknown.
    `image_patches` and `audio_frames` are what the media in the prompt add, in the units of
    `mileage.policy.modality`. `prefix_key` is a hash of tenant, model and the head of the prompt,
    equal for prompts that can share a prefix cache, None where there is no text to hash.
    `prefix_blocks` are content ids of the prompt's whole blocks of `prefix_block_tokens` tokens (an
    estimate, where they are made of text), each of which stands for all of the prompt up to its
    end; empty where nothing routes by them.

    Requests with the same `merge_key` may share one generation; those with the same `batch_key` may
    go upstream as one call, in which this one has `batch_items` items. None: it shares nothing.
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
    prompt_tokens_max: int | None = None
    priority: Priority | None = None
    """What the client asked for; None: its tenant's. A client cannot ask for more than that."""
    choices: int = 1
    """Answers to generate for the one prompt (`n`)."""
    image_patches: int = 0
    audio_frames: int = 0
    merge_key: str | None = None
    batch_key: str | None = None
    batch_items: int = 1
    prefix_blocks: tuple[int, ...] = ()
    prefix_block_tokens: int = 0
    prompt_counted: bool = False
    """`prompt_tokens_estimate` is a count by the model's tokenizer."""
