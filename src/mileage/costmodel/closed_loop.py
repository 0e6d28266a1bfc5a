"""Closed loops: TPOT and TTFT that a fixed number of requests in flight see in the long run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mileage.costmodel.operators import Array, Load, operators
from mileage.costmodel.rates import Rates
from mileage.costmodel.sizes import Sizes

__all__ = ["ClosedLoop", "Latencies", "closed_loop"]

_ROUNDS = 8
_DAMPING = 0.5
_GRAPH_ROWS_MAX = 512.0


class ClosedLoop(NamedTuple):
    """Requests in flight, each followed by another one. Arrays of one length."""

    requests: Array
    prompt_tokens: Array
    output_tokens: Array
    running_max: Array
    """What the engine runs at once, by its setting and by its memory."""
    step_tokens_max: Array
    same_length: Array
    """1 where all requests are equally long, 0 where they differ."""


class Latencies(NamedTuple):
    """Means over requests, in seconds."""

    tpot_s: Array
    ttft_s: Array
    prefill_share_ratio: Array
    """Of the engine's time: what it computes prompts in."""


def closed_loop(size: Sizes, rate: Rates, loop: ClosedLoop) -> Latencies:
    """The steady state of such loops.

    A request decodes O - 1 tokens after its first one, among n others whose contexts hold
    I + O / 2 tokens each in the mean. Let a step that only decodes them take D, and let a prompt,
    computed in k chunks of mixed steps that take M each, make the engine's work longer by
    P = k (M - D). While one request is in flight every other one is replaced once: it lives
    through R - 1 prompts of others, a share w of them before its own first token, the rest between
    its later ones:

        TTFT = fixed + D / 2 + k M + w (R - 1) P
        TPOT = min(D + (1 - w) (R - 1) P / (O - 1), F)

    F is a step with as many prompt tokens as a step may have: there is no longer one. Where all
    begin at once, w = 1/2 (the mean request waits for half of the others); where they begin evenly
    spread, 0: w = clump / 2. But requests of the same length whose prompts were computed in one
    step end in one step, and their successors' prompts share one again: all g prompts that fit in
    a step wait for each other, so that w (R - 1) is at least g - 1. The n that decode are the share
    of the R in flight that TPOT and TTFT give, and those depend on n: a few rounds settle both.
    """
    running = np.minimum(loop.requests, loop.running_max)
    outputs = np.maximum(loop.output_tokens - 1.0, 1.0)
    context = loop.prompt_tokens + loop.output_tokens / 2.0
    share = np.full_like(running, 0.9)
    # Where more than one request ends per step, their successors' prompts are computed together.
    together = np.maximum(running / outputs, 1.0)
    for _ in range(_ROUNDS):
        decoding = np.maximum(share * running, np.minimum(running, 1.0))
        decode_s = _steps(size, rate, decoding, context, 0.0 * running, 0.0 * running)
        room = np.maximum(loop.step_tokens_max - decoding, 1.0)
        alone_s, alone_chunks = _own(size, rate, loop, decoding, context)
        shared_s, chunks = _mixed(size, rate, loop, decoding, context, room, together)
        prompt_s = chunks * np.maximum(shared_s - decode_s, 0.0) / together
        full_s, _ = _mixed(size, rate, loop, decoding, context, room, room / loop.prompt_tokens)
        others = np.maximum(running - 1.0, 0.0)
        group = np.minimum(running, np.maximum(room / loop.prompt_tokens, 1.0))
        before = np.maximum(rate.clump_ratio / 2.0 * others, loop.same_length * (group - 1.0))
        later_s = decode_s + (others - before) * prompt_s / outputs
        tpot_s = np.minimum(later_s, np.maximum(full_s, decode_s))
        waiting = np.where(running > 1.0, decode_s / 2.0, 0.0)
        first_s = rate.ttft_s + waiting + alone_chunks * alone_s + before * prompt_s
        found = outputs * tpot_s / (outputs * tpot_s + first_s)
        share = _DAMPING * share + (1.0 - _DAMPING) * found
    busy = np.minimum((running * prompt_s) / (outputs * tpot_s + first_s), 1.0)
    return Latencies(tpot_s, first_s, busy)


def _own(
    size: Sizes, rate: Rates, loop: ClosedLoop, decoding: Array, context: Array
) -> tuple[Array, Array]:
    """Seconds of a step with a chunk of a request's own prompt, and its chunks.

    One rank computes all of it; the others, which have prompts of their own, wait for the slowest.
    """
    ranks = size.attention_ranks
    room = np.maximum(loop.step_tokens_max - decoding / ranks, 1.0)
    chunk = np.minimum(loop.prompt_tokens, room)
    chunks = loop.prompt_tokens / chunk
    pairs = loop.prompt_tokens * (loop.prompt_tokens + 1.0) / 2.0 / chunks
    return _steps(size, rate, decoding, context, chunk * ranks, pairs * ranks), chunks


def _mixed(
    size: Sizes,
    rate: Rates,
    loop: ClosedLoop,
    decoding: Array,
    context: Array,
    room: Array,
    prompts: Array | float,
) -> tuple[Array, Array]:
    """Seconds of a step with a chunk of so many prompts, and the chunks that those take."""
    wanted = loop.prompt_tokens * prompts
    chunk = np.minimum(wanted, room)
    chunks = wanted / chunk
    pairs = prompts * loop.prompt_tokens * (loop.prompt_tokens + 1.0) / 2.0 / chunks
    return _steps(size, rate, decoding, context, chunk, pairs), chunks


def _steps(
    size: Sizes, rate: Rates, decoding: Array, context: Array, prefill: Array, pairs: Array
) -> Array:
    rows = decoding / size.attention_ranks
    eager = np.where((prefill > 0.0) | (rows > _GRAPH_ROWS_MAX), 1.0, 0.0)
    load = Load(decoding + prefill, decoding, decoding * context, prefill, pairs, eager)
    total: Array = np.sum([each.seconds for each in operators(size, rate, load)], axis=0)
    return total
