"""Arrivals: what the controller and an engine are told of a request of a trace."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from random import Random
from typing import Final

from mileage.core.errors import ConfigError, TraceError
from mileage.core.request import Request
from mileage.policy.modality import AUDIO_FRAMES_PER_TOKEN, IMAGE_PATCHES_PER_TOKEN
from mileage.policy.routing import name_hash
from mileage.workload.trace_request import TraceRequest

__all__ = ["PREFIX_MASK", "checked", "estimated_tokens", "request_of", "units_of"]

PREFIX_MASK: Final = (1 << 63) - 1


def checked(requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
    """The same requests. Raises TraceError for one that no trace may have."""
    last_s = 0.0
    for number, request in enumerate(requests, 1):
        if not last_s <= request.arrived_s < float("inf"):
            raise TraceError("trace", number, f"arrived_s {request.arrived_s} after {last_s}")
        last_s = request.arrived_s
        if request.prompt_tokens < 1:
            raise TraceError(
                "trace", number, f"prompt_tokens {request.prompt_tokens}, not 1 or more"
            )
        least = 0 if request.endpoint == "embeddings" else 1
        if request.output_tokens < least:
            message = f"output_tokens {request.output_tokens}, not {least} or more"
            raise TraceError("trace", number, message)
        yield request


def request_of(
    trace: TraceRequest,
    request_id: int,
    model: str,
    error_ratio: float,
    random: Random,
    *,
    blocks: bool = False,
) -> Request:
    """The request as it is when it arrives.

    A gateway estimates the tokens of a prompt from its bytes; here it is told the true count, or,
    with `error_ratio`, one that is off by a normal error of so much of it. Requests of one content
    may share a generation; those that begin with the same block belong to one replica's cache.
    `blocks`: the router goes by all whole blocks of the prompt.
    """
    prompt_tokens = trace.prompt_tokens
    if trace.image_patches or trace.audio_frames:  # a gateway counts these apart
        media = trace.image_patches / IMAGE_PATCHES_PER_TOKEN
        media += trace.audio_frames / AUDIO_FRAMES_PER_TOKEN
        prompt_tokens = max(1, round(prompt_tokens - media))
    if error_ratio:
        prompt_tokens = estimated_tokens(prompt_tokens, error_ratio, random)
    prefix_key = None
    if trace.prefix_blocks:
        prefix_key = trace.prefix_blocks[0] & PREFIX_MASK
    elif trace.conversation is not None:
        prefix_key = trace.conversation & PREFIX_MASK
    embeds = trace.endpoint == "embeddings"
    whole: tuple[int, ...] = ()
    if blocks and trace.prefix_blocks:
        whole = _whole_blocks(trace)
    return Request(
        id=request_id,
        tenant=trace.tenant,
        model=model,
        endpoint=trace.endpoint,
        stream=trace.stream and not embeds,
        arrived_s=trace.arrived_s,
        prompt_tokens_estimate=prompt_tokens,
        output_tokens_max=trace.output_tokens_max,
        prefix_key=prefix_key,
        priority=trace.priority,
        image_patches=trace.image_patches,
        audio_frames=trace.audio_frames,
        merge_key=None if trace.content_id is None else f"{model}:{trace.content_id}",
        batch_key=model if embeds else None,
        prefix_blocks=whole,
        prefix_block_tokens=trace.block_tokens if whole else 0,
    )


def _whole_blocks(trace: TraceRequest) -> tuple[int, ...]:
    """Ids of its prompt's whole blocks; another adapter's are others."""
    blocks = trace.prefix_blocks[: trace.prompt_tokens // trace.block_tokens]
    if trace.adapter is None:
        return blocks
    mark = name_hash(trace.adapter) & PREFIX_MASK
    return tuple(block ^ mark for block in blocks)


def estimated_tokens(prompt_tokens: int, error_ratio: float, random: Random) -> int:
    """What a gateway takes a prompt of so many tokens for."""
    return max(1, round(prompt_tokens * (1.0 + random.gauss(0.0, error_ratio))))


def units_of(trace: TraceRequest, block_tokens: int) -> tuple[tuple[Hashable, ...], int]:
    """The keys of the full blocks of its prompt, and the tokens of each: what a cache can find.

    Blocks of a trace are mostly longer than an engine's, and stay whole then; shorter ones are
    taken together. Raises ConfigError where neither is a multiple of the other.
    """
    theirs = trace.block_tokens
    if not trace.prefix_blocks or theirs < 1:
        return (), 0
    keys: tuple[Hashable, ...] = trace.prefix_blocks[: trace.prompt_tokens // theirs]
    if theirs % block_tokens:
        if block_tokens % theirs:
            expected = f"a divisor or a multiple of the {theirs} tokens of the trace's blocks"
            raise ConfigError("engine.block_tokens", block_tokens, expected)
        count = block_tokens // theirs
        whole = len(keys) // count
        keys = tuple(keys[i * count : (i + 1) * count] for i in range(whole))
        theirs = block_tokens
    if trace.adapter is not None:
        keys = tuple((trace.adapter, key) for key in keys)
    return keys, theirs
