"""The fitted efficiencies, as `python -m benchmarks.steptime --write` writes them."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.efficiency import Efficiency

__all__ = ["FITTED", "TPOT_INTERVAL", "TTFT_INTERVAL"]

FITTED: Final = Efficiency(
    half_compute_ratio=0.685,
    fp8_compute_ratio=0.618,
    int4_compute_ratio=0.557,
    fp4_compute_ratio=0.402,
    half_memory_ratio=0.826,
    fp8_memory_ratio=0.73,
    int4_memory_ratio=0.59,
    fp4_memory_ratio=0.608,
    blackwell_compute_ratio=0.854,
    gemm_rows=47.9,
    tile_rows=70.3,
    int4_tile_rows=29.6,
    expert_compute_ratio=0.693,
    expert_memory_ratio=0.792,
    expert_rows=12,
    expert_popularity_shape=0.933,
    prefill_attention_ratio=0.514,
    decode_attention_ratio=0.661,
    latent_attention_ratio=0.55,
    link_ratio=0.703,
    link_alpha_s=4.93e-06,
    pcie_alpha_s=1.2e-05,
    network_alpha_s=3e-05,
    layer_s=1.71e-05,
    eager_layer_s=9.86e-05,
    expert_layer_s=1.7e-05,
    latent_layer_s=4.97e-05,
    sglang_int4_expert_layer_s=0.000575,
    request_s=7.96e-06,
    vllm_step_s=0.00149,
    sglang_step_s=0.00128,
    trtllm_step_s=0.000995,
    ttft_s=0.0191,
    mixed_clump_ratio=0.198,
    prefill_first_clump_ratio=0.801,
)

TPOT_INTERVAL: Final = (0.851, 1.744)
"""Four of five measured TPOTs are within these multiples of the predicted one."""

TTFT_INTERVAL: Final = (0.575, 1.948)
"""The same of TTFT, where prompts do not queue."""
