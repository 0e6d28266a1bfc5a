"""Operators: what one step does, one kind of kernel each, and how long each takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.rates import Rates
from mileage.costmodel.sizes import Sizes

__all__ = ["Array", "Load", "Operator", "operators"]

Array = NDArray[np.float64]
_ROUTER_BYTES = 2.0


class Load(NamedTuple):
    """What one step of a replica computes, or many steps: arrays of the same length."""

    tokens: Array
    """Rows of its GEMMs; padded to the size of the CUDA graph where one is used."""
    decoding: Array
    """Requests that decode one token each."""
    kv_tokens: Array
    """Tokens of their context, together."""
    prefill_tokens: Array
    prefill_pairs: Array
    """Pairs of a query and a key of the prompts' attention."""
    eager: Array
    """1 where kernels are launched one by one, 0 where a CUDA graph is replayed."""


class Operator(NamedTuple):
    """One kind of kernel in all layers of a step, on one GPU.

    It takes the longer of `compute_s` and `memory_s`, and `link_s` and `host_s` besides.
    """

    name: str
    flops: Array
    bytes: Array
    link_bytes: Array
    compute_s: Array
    memory_s: Array
    link_s: Array
    host_s: Array

    @property
    def seconds(self) -> Array:
        """How long it takes."""
        return np.maximum(self.compute_s, self.memory_s) + self.link_s + self.host_s


def operators(size: Sizes, rate: Rates, load: Load) -> list[Operator]:
    """Everything that a step does. Their seconds add up to the step's.

    All requests of a replica advance by one token: with pipeline stages there is a batch in each,
    so that a layer sees the tokens of one batch, and a step is the time in which each batch has
    passed every layer. A request is in one batch, and on one data-parallel rank: of fewer requests
    than those each takes as long as if all were there.
    """
    rows = np.ceil(load.tokens / size.attention_ranks)
    found = [
        _gemm(
            "projections",
            size.layers,
            size.attention_weights,
            size.attention_bytes,
            rows,
            (
                rate.attention_flop_s,
                rate.attention_byte_s,
                rate.gemm_rows,
                rate.attention_tile_rows,
            ),
        ),
        _prefill_attention(size, rate, load),
        _decode_attention(size, rate, load),
    ]
    dense = (rate.dense_flop_s, rate.dense_byte_s, rate.gemm_rows, rate.dense_tile_rows)
    found += [
        _gemm("feed-forward", size.dense_layers, size.dense_weights, size.dense_bytes, rows, dense),
        _gemm(
            "shared experts", size.moe_layers, size.shared_weights, size.shared_bytes, rows, dense
        ),
        _gemm(
            "gate",
            size.moe_layers,
            size.router_weights,
            size.router_weights * _ROUTER_BYTES,
            rows,
            (rate.half_flop_s, rate.half_byte_s, rate.gemm_rows, rate.half_tile_rows),
        ),
        _experts(size, rate, load),
        _small_kernels(size, rate, load, rows),
        _all_reduce(size, rate, rows),
        _exchange(size, rate, rows),
        _send(size, rate, rows),
        _head(size, rate, load),
        _host(rate, load),
    ]
    return found


def _operator(
    name: str,
    like: Array,
    *,
    work: tuple[Array | float, Array | float, Array | float] = (0.0, 0.0, 0.0),
    compute_s: Array | float = 0.0,
    memory_s: Array | float = 0.0,
    link_s: Array | float = 0.0,
    host_s: Array | float = 0.0,
) -> Operator:
    """All figures as arrays like `like`; `work` is FLOPs, bytes and bytes over links."""
    zero = np.zeros_like(like)
    flops, size, wire = (each + zero for each in work)
    return Operator(
        name, flops, size, wire, compute_s + zero, memory_s + zero, link_s + zero, host_s + zero
    )


def _used_rows(rows: Array, vain: Array | float) -> Array:
    """Rows that a GEMM computes for `rows`: tiles are padded, up to `vain` rows in the end."""
    return rows + vain * rows / (rows + vain)


def _gemm(
    name: str,
    layers: float,
    weights: float,
    weight_bytes: float,
    rows: Array,
    rate: tuple[float, float, float, float],
) -> Operator:
    """Of matrices that all rows are multiplied with: a tile has a number of rows at least."""
    flop_s, byte_s, vain, tile = rate
    used = np.maximum(_used_rows(rows, vain), tile)
    flops = 2.0 * layers * weights * rows
    moved = layers * weight_bytes
    return _operator(
        name,
        rows,
        work=(flops, moved, 0.0),
        compute_s=2.0 * layers * weights * used * flop_s,
        memory_s=moved * byte_s,
    )


def _experts(size: Sizes, rate: Rates, load: Load) -> Operator:
    """Grouped GEMMs over the experts that at least one token has chosen.

    A token chooses k of E experts. Chosen alike, T tokens would use E * (1 - (1 - k / E)^T)
    different ones; but some are chosen often and others rarely. If how often is gamma distributed
    with shape r, an expert that the first token did not choose stays unused by the others with
    a chance of (1 + y / r)^-r, where y = (1 - T) ln(1 - k / E) is what it would be alike.
    Ranks wait for the one that got the most: of n numbers with a mean of m, each from many rare
    choices, the largest is about m + sqrt(2 m ln n); the variance of how many experts are used is
    that of a share p of them, m (1 - p).
    """
    tokens = np.ceil(load.tokens / size.batches)
    share = np.minimum(size.experts_per_token / size.experts, 1.0 - 1e-12)
    alike = (1.0 - tokens) * np.log1p(-share)
    shape = rate.expert_popularity_shape
    left = np.where(
        tokens > 0.0, (1.0 - share) * (1.0 + np.maximum(alike, 0.0) / shape) ** -shape, 1.0
    )
    distinct = size.local_experts * (1.0 - left)
    ranks = size.experts / np.maximum(size.local_experts, 1.0)
    choices = tokens * size.experts_per_token / ranks
    spread = 2.0 * np.log(np.maximum(ranks, 1.0))
    busiest = np.minimum(choices + np.sqrt(spread * choices), tokens * size.experts_per_token)
    used = np.minimum(distinct + np.sqrt(spread * distinct * left), size.local_experts)
    used = np.minimum(used, busiest)
    per_expert = busiest / np.maximum(used, 1e-9)
    computed = used * _used_rows(per_expert, rate.expert_rows)
    moved = size.moe_layers * used * size.expert_bytes
    return _operator(
        "experts",
        load.tokens,
        work=(2.0 * size.moe_layers * size.expert_weights * busiest, moved, 0.0),
        compute_s=2.0 * size.moe_layers * size.expert_weights * computed * rate.expert_flop_s,
        memory_s=moved * rate.expert_byte_s,
    )


def _prefill_attention(size: Sizes, rate: Rates, load: Load) -> Operator:
    pairs = size.full_layers * load.prefill_pairs
    pairs = pairs + size.window_layers * size.window_tokens * load.prefill_tokens
    flops = pairs * size.pair_flops / size.attention_ranks
    return _operator(
        "prefill attention",
        load.tokens,
        work=(flops, 0.0, 0.0),
        compute_s=flops * rate.pair_flop_s,
    )


def _decode_attention(size: Sizes, rate: Rates, load: Load) -> Operator:
    """Reads the context of each request. Of latent vectors all heads read the same: computing
    takes longer than reading where there are many heads (FlashMLA's analysis). A context is read
    by one rank, in all layers: those of few requests are not spread over all."""
    read = size.full_layers * load.kv_tokens / np.clip(load.decoding, 1.0, size.attention_ranks)
    windows = size.window_layers * size.window_tokens * load.decoding
    read = read + windows / _ranks_in_use(size, load)
    return _operator(
        "decode attention",
        load.tokens,
        work=(read * size.kv_flops, read * size.kv_bytes, 0.0),
        compute_s=read * size.kv_flops * rate.kv_flop_s,
        memory_s=read * size.kv_bytes * rate.kv_byte_s,
    )


def _ranks_in_use(size: Sizes, load: Load) -> Array:
    """Over which what each decoding request costs is spread. A step with prompts takes it as spread
    evenly, however few requests there are: so little beside a prompt stays linear in them."""
    few = np.clip(load.decoding, 1.0, size.attention_ranks)
    return np.where(load.prefill_tokens > 0.0, size.attention_ranks, few)


def _small_kernels(size: Sizes, rate: Rates, load: Load, rows: Array) -> Operator:
    """Norms, rotary embedding, activation, cache writes: their bytes, latencies and launches."""
    tokens = np.ceil(load.tokens / size.batches)
    ranks = size.experts / np.maximum(size.local_experts, 1.0)
    moved = size.layers * size.elementwise_bytes * rows
    moved = moved + size.moe_layers * size.permute_bytes * tokens / ranks
    launches = size.layers * (rate.layer_s + load.eager * rate.eager_layer_s)
    launches = launches + size.moe_layers * rate.expert_layer_s
    return _operator(
        "small kernels",
        rows,
        work=(0.0, moved, 0.0),
        memory_s=moved * rate.plain_byte_s,
        host_s=launches,
    )


def _all_reduce(size: Sizes, rate: Rates, rows: Array) -> Operator:
    """Two per layer; experts that other ranks hold come back in the exchange instead."""
    count = 2.0 * size.layers - np.where(np.asarray(size.expert_ranks) > 1, size.moe_layers, 0.0)
    many = np.asarray(size.tensor_ranks) > 1
    wire = np.where(many, count * size.reduce_bytes * rows, 0.0)
    latency = np.where(many, count * rate.reduce_s, 0.0)
    return _operator(
        "all-reduce",
        rows,
        work=(0.0, 0.0, wire),
        link_s=latency + wire * rate.reduce_byte_s,
    )


def _exchange(size: Sizes, rate: Rates, rows: Array) -> Operator:
    """All-to-all before and after the experts, with data-parallel attention."""
    many = np.asarray(size.expert_ranks) > 1
    wire = np.where(many, size.moe_layers * size.exchange_bytes * rows, 0.0)
    wire = wire / size.tensor_ranks
    latency = np.where(many, 2.0 * size.moe_layers * rate.exchange_s, 0.0)
    return _operator(
        "expert exchange",
        rows,
        work=(0.0, 0.0, wire),
        link_s=latency + wire * rate.exchange_byte_s,
    )


def _send(size: Sizes, rate: Rates, rows: Array) -> Operator:
    """Hidden states from one pipeline stage to the next."""
    times = size.stages - 1.0
    wire = times * size.reduce_bytes * rows
    return _operator(
        "pipeline send",
        rows,
        work=(0.0, 0.0, wire),
        link_s=times * rate.send_s + wire * rate.send_byte_s,
    )


def _head(size: Sizes, rate: Rates, load: Load) -> Operator:
    """Logits of the tokens that are sampled: the weights are read once, each row is computed."""
    moved = size.head_weights * 2.0
    rows = load.decoding / _ranks_in_use(size, load)
    flops = 2.0 * size.head_weights * rows
    return _operator(
        "LM head",
        load.tokens,
        work=(flops, moved, 0.0),
        memory_s=moved * rate.half_byte_s + flops * rate.half_flop_s,
    )


def _host(rate: Rates, load: Load) -> Operator:
    """Scheduler, sampler and detokeniser, as far as they do not overlap with the GPU."""
    return _operator("host", load.tokens, host_s=rate.step_s + rate.request_s * load.decoding)
