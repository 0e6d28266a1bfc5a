"""The GPU catalogue, continued: accelerators of other makers than NVIDIA."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.gpu import Gpu

__all__ = ["OTHER_GPUS"]

OTHER_GPUS: Final = (
    Gpu(
        name="MI300X",
        aliases=("amd-mi300x", "mi300x-192gb"),
        half_tflops=1307.4,
        fp8_tflops=2614.9,
        int8_tops=2614.9,
        memory_gb=192,
        memory_mib=196592,
        bandwidth_gb_per_s=5300,
        nvlink_gb_per_s=896,
        pcie=5,
        power_w=750,
        source="AMD MI300X data sheet by jaredwatkins.com and aiwiki.ai; gpu.blog (links)",
        note="some tables give the FP16 rate with sparsity",
    ),
    Gpu(
        name="MI325X",
        aliases=("amd-mi325x", "mi325x-256gb"),
        half_tflops=1307.4,
        fp8_tflops=2614.9,
        int8_tops=2614.9,
        memory_gb=256,
        memory_mib=262128,
        bandwidth_gb_per_s=6000,
        nvlink_gb_per_s=896,
        pcie=5,
        power_w=1000,
        source="AMD MI325X data sheet; TechPowerUp GPU database (power)",
        unverified=("half_tflops", "fp8_tflops", "int8_tops", "memory_gb", "bandwidth_gb_per_s"),
    ),
    Gpu(
        name="MI355X",
        aliases=("amd-mi355x", "mi355x-288gb"),
        half_tflops=2516.6,
        fp8_tflops=5033.2,
        fp4_tflops=10066.3,
        int8_tops=5033.2,
        memory_gb=288,
        memory_mib=294896,
        bandwidth_gb_per_s=8000,
        nvlink_gb_per_s=1075,
        pcie=5,
        power_w=1400,
        source="AMD MI355X data sheet",
        unverified=("half_tflops", "fp8_tflops", "fp4_tflops", "int8_tops", "nvlink_gb_per_s"),
    ),
    Gpu(
        name="Ascend-910B3",
        aliases=("910b3", "ascend-910b"),
        half_tflops=313,
        int8_tops=626,
        memory_gb=64,
        memory_mib=65536,
        bandwidth_gb_per_s=1600,
        nvlink_gb_per_s=392,
        power_w=400,
        source="vllm-project/vllm-ascend issue 8285 (memory); no public data sheet",
        unverified=("half_tflops", "int8_tops", "bandwidth_gb_per_s", "nvlink_gb_per_s", "power_w"),
        note="public figures of the FP16 rate range from 256 to 320",
    ),
    Gpu(
        name="Ascend-910B4",
        aliases=("910b4",),
        half_tflops=280,
        int8_tops=550,
        memory_gb=32,
        memory_mib=32768,
        bandwidth_gb_per_s=800,
        nvlink_gb_per_s=392,
        power_w=310,
        source="oryoy.com (memory); no public data sheet",
        unverified=("half_tflops", "int8_tops", "bandwidth_gb_per_s", "nvlink_gb_per_s", "power_w"),
        note="another public table gives 1200 GB/s",
    ),
)
