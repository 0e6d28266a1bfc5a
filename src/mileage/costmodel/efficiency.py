"""Efficiency: which part of its peaks hardware reaches, and what each step costs besides."""

from __future__ import annotations

import msgspec

__all__ = ["Efficiency"]


class Efficiency(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Shares of peaks (ratios) and fixed costs (seconds).

    The defaults are round figures of general experience; the fitted ones are in
    `mileage.costmodel.efficiency_table`.
    """

    half_compute_ratio: float = 0.7
    """GEMMs of many rows: share of the tensor cores' dense peak, by the weights' precision."""
    fp8_compute_ratio: float = 0.6
    int4_compute_ratio: float = 0.55
    fp4_compute_ratio: float = 0.4
    half_memory_ratio: float = 0.85
    """GEMMs of few rows: share of the memory's bandwidth at which weights are read."""
    fp8_memory_ratio: float = 0.75
    int4_memory_ratio: float = 0.6
    fp4_memory_ratio: float = 0.55
    blackwell_compute_ratio: float = 0.85
    """What Blackwell's GEMMs reach, as a share of what those of older GPUs do."""
    gemm_rows: float = 48.0
    """Rows that a GEMM computes in vain: tiles that are not full, waves that are not whole."""
    tile_rows: float = 64.0
    """Rows of the smallest tile of a GEMM: fewer take as long. It shows where a GPU computes slowly
    for its bandwidth (H20: from 37 rows on in half precision), elsewhere reading takes longer."""
    int4_tile_rows: float = 32.0
    """The same, of weights that are unpacked on the way."""
    expert_compute_ratio: float = 0.7
    """Grouped GEMMs of experts, as a share of what plain ones reach."""
    expert_memory_ratio: float = 0.75
    expert_rows: float = 12.0
    """As `gemm_rows`, for each expert that is used."""
    expert_popularity_shape: float = 1.0
    """Experts are not chosen alike: the shape of a gamma distribution of how often each is."""
    prefill_attention_ratio: float = 0.5
    """Attention of prompts: share of the half-precision peak."""
    decode_attention_ratio: float = 0.65
    """Attention of decoding requests: share of the bandwidth at which the KV cache is read."""
    latent_attention_ratio: float = 0.55
    """Attention over latent vectors (MLA, absorbed): share of the half-precision peak."""
    link_ratio: float = 0.7
    """Share of the links' bandwidth."""
    link_alpha_s: float = 4e-6
    """Latency of one collective for each doubling of the GPUs that take part, over NVLink."""
    pcie_alpha_s: float = 12e-6
    """The same, over PCIe."""
    network_alpha_s: float = 30e-6
    """The same, between machines."""
    layer_s: float = 14e-6
    """Small kernels of a layer, and the gaps between kernels, in a CUDA graph."""
    eager_layer_s: float = 100e-6
    """What a layer takes more where its kernels are launched one by one."""
    expert_layer_s: float = 15e-6
    """What choosing, permuting and gathering take more in a layer with experts."""
    latent_layer_s: float = 40e-6
    """What the further small kernels of a layer with MLA take (projections in two steps, norms
    between them, absorption)."""
    sglang_int4_expert_layer_s: float = 500e-6
    """What a layer with experts in INT4 takes more in SGLang, which has no fused kernel for it."""
    request_s: float = 8e-6
    """Sampling, stop conditions, detokenising and streaming, for each request."""
    vllm_step_s: float = 1.5e-3
    """Scheduling and preparing a step, as far as it does not overlap with the GPU's work."""
    sglang_step_s: float = 1.0e-3
    trtllm_step_s: float = 1.0e-3
    ttft_s: float = 15e-3
    """What a first token takes besides steps: HTTP, tokenising, the first event."""
    mixed_clump_ratio: float = 0.2
    """Of a closed loop: how much requests begin together, 0 (evenly spread) to 1 (all at once),
    with an engine that computes prompts and tokens in one step, so that requests drift apart."""
    prefill_first_clump_ratio: float = 0.8
    """The same with one that lets tokens wait for prompts (SGLang), so that they stay together."""
