"""Rates: seconds per operation and byte on one GPU of a layout, after its efficiency."""

from __future__ import annotations

import math
from typing import NamedTuple

from mileage.costmodel.efficiency import Efficiency
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.layout import Layout
from mileage.costmodel.precision import Precision, compute_tflops

__all__ = ["Rates", "rates"]

_NETWORK_GB_PER_S = 50.0
"""One direction, per GPU: an InfiniBand port of 400 Gb/s."""
_PEER_PCIE_SHARE = 0.5
"""Traffic between cards passes the root complex: out of one slot and into the other."""

_Table = dict[Precision, float]


class Rates(NamedTuple):
    """Fields may be arrays as well."""

    attention_flop_s: float
    attention_byte_s: float
    dense_flop_s: float
    dense_byte_s: float
    expert_flop_s: float
    expert_byte_s: float
    half_flop_s: float
    half_byte_s: float
    pair_flop_s: float
    kv_flop_s: float
    kv_byte_s: float
    plain_byte_s: float
    """Of small kernels, which read and write what passes through."""
    gemm_rows: float
    attention_tile_rows: float
    dense_tile_rows: float
    half_tile_rows: float
    expert_rows: float
    expert_popularity_shape: float
    reduce_s: float
    """Latency of one all-reduce."""
    reduce_byte_s: float
    exchange_s: float
    """Latency of sending tokens to experts, or back."""
    exchange_byte_s: float
    send_s: float
    send_byte_s: float
    layer_s: float
    eager_layer_s: float
    expert_layer_s: float
    step_s: float
    request_s: float
    ttft_s: float
    """What a first token takes besides steps."""
    clump_ratio: float
    """How much requests of a closed loop begin together, 0 to 1."""


def rates(layout: Layout, efficiency: Efficiency) -> Rates:
    """The rates of that layout."""
    gpu, e = layout.gpu, efficiency
    compute, memory, tile = _by_precision(gpu, e)
    slow = layout.engine == "sglang" and layout.weights == "int4"
    byte_s = 1e-9 / gpu.bandwidth_gb_per_s
    half_s = 1e-12 / gpu.half_tflops

    generation = e.blackwell_compute_ratio if gpu.fp4_tflops else 1.0

    def flop(kind: Precision) -> float:
        return 1e-12 / (compute_tflops(gpu, kind) * compute[kind] * generation)

    tensor_s, tensor_byte_s = _link(layout, layout.tensor_parallel, e)
    ranks_s, ranks_byte_s = _link(layout, layout.ranks, e)
    send_s, send_byte_s = _link(layout, layout.gpus, e)
    return Rates(
        attention_flop_s=flop(layout.attention_weights),
        attention_byte_s=byte_s / memory[layout.attention_weights],
        dense_flop_s=flop(layout.weights),
        dense_byte_s=byte_s / memory[layout.weights],
        expert_flop_s=flop(layout.weights) / e.expert_compute_ratio,
        expert_byte_s=byte_s / (memory[layout.weights] * e.expert_memory_ratio),
        half_flop_s=flop("bf16"),
        half_byte_s=byte_s / memory["bf16"],
        pair_flop_s=half_s / (e.prefill_attention_ratio * generation),
        kv_flop_s=half_s / e.latent_attention_ratio,
        kv_byte_s=byte_s / e.decode_attention_ratio,
        plain_byte_s=byte_s / e.half_memory_ratio,
        gemm_rows=e.gemm_rows,
        attention_tile_rows=tile[layout.attention_weights],
        dense_tile_rows=tile[layout.weights],
        half_tile_rows=e.tile_rows,
        expert_rows=e.expert_rows,
        expert_popularity_shape=e.expert_popularity_shape,
        reduce_s=tensor_s * math.log2(layout.tensor_parallel),
        # A ring passes each byte twice, but for the GPU's own part.
        reduce_byte_s=2.0 * tensor_byte_s * (1.0 - 1.0 / layout.tensor_parallel),
        exchange_s=ranks_s * math.log2(layout.ranks),
        exchange_byte_s=ranks_byte_s * (1.0 - 1.0 / layout.ranks),
        send_s=send_s,
        send_byte_s=send_byte_s,
        layer_s=e.layer_s + (e.latent_layer_s if layout.model.mla else 0.0),
        eager_layer_s=e.eager_layer_s,
        expert_layer_s=e.expert_layer_s + (e.sglang_int4_expert_layer_s if slow else 0.0),
        step_s={"vllm": e.vllm_step_s, "sglang": e.sglang_step_s, "trtllm": e.trtllm_step_s}[
            layout.engine
        ],
        request_s=e.request_s,
        ttft_s=e.ttft_s,
        clump_ratio=e.prefill_first_clump_ratio
        if layout.engine == "sglang"
        else e.mixed_clump_ratio,
    )


def _by_precision(gpu: Gpu, e: Efficiency) -> tuple[_Table, _Table, _Table]:
    """Shares of the compute peak and of the bandwidth, and rows of a tile, by weights' precision.

    What the GPU cannot multiply in is unpacked on the way, as INT4 always is.
    """
    native: dict[Precision, bool] = {
        "bf16": True,
        "fp8": gpu.fp8_tflops is not None,
        "int8": gpu.int8_tops is not None,
        "int4": False,
        "fp4": gpu.fp4_tflops is not None,
    }
    reached: _Table = {
        "bf16": e.half_compute_ratio,
        "fp8": e.fp8_compute_ratio,
        "int8": e.fp8_compute_ratio,
        "int4": e.int4_compute_ratio,
        "fp4": e.fp4_compute_ratio,
    }
    memory: _Table = {
        "bf16": e.half_memory_ratio,
        "fp8": e.fp8_memory_ratio,
        "int8": e.fp8_memory_ratio,
        "int4": e.int4_memory_ratio,
        "fp4": e.fp4_memory_ratio,
    }
    compute = {k: reached[k] if own else e.int4_compute_ratio for k, own in native.items()}
    tile = {k: e.tile_rows if own else e.int4_tile_rows for k, own in native.items()}
    return compute, memory, tile


def _link(layout: Layout, members: int, e: Efficiency) -> tuple[float, float]:
    """Latency per doubling and seconds per byte, one way, of a group of so many GPUs."""
    gpu = layout.gpu
    if members > gpu.domain_gpus:
        return e.network_alpha_s, 1e-9 / (_NETWORK_GB_PER_S * e.link_ratio)
    if layout.link == "nvlink" and gpu.nvlink_gb_per_s is not None:
        return e.link_alpha_s, 2e-9 / (gpu.nvlink_gb_per_s * e.link_ratio)
    return e.pcie_alpha_s, 1e-9 / (gpu.pcie_gb_per_s * _PEER_PCIE_SHARE * e.link_ratio)
