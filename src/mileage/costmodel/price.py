"""Prices: what an hour of a GPU costs, by public lists; None where none is known, never 0."""

from __future__ import annotations

import statistics
from typing import Final

import msgspec

from mileage.costmodel.gpu import Gpu

__all__ = ["PRICES", "GpuPrice", "gpu_prices", "usd_per_gpu_hour"]


class GpuPrice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One offer, on demand, for one GPU and hour, its share of the machine with it."""

    gpu: str
    """Name in the catalogue."""
    provider: str
    usd_per_gpu_hour: float
    date: str
    """Of the list, YYYY-MM[-DD], or its revision where it bears no date."""
    source: str


_VANTAGE = ("2025-11-30", "instances.vantage.sh, by tsaol/aws-gpu")
_OCI = ("revision 05887511", "skypilot-catalog catalogs/v8/oci/vms.csv")
_NEBIUS = ("revision 0082b043", "skypilot-catalog catalogs/v8/nebius/vms.csv")
_LAMBDA = ("revision 0f407038", "skypilot-catalog catalogs/v8/lambda/vms.csv")
_RUNPOD = ("revision 01acdfd4", "skypilot-catalog catalogs/v8/runpod/vms.csv")
_AZURE = ("2025", "DSHydro/NeuralHydrologyAzure NOTES.md")
_DEPLOYBASE = ("2026-03", "deploybase.ai, a secondary source")
_SPHERON = ("2026-05-03", "spheron.network/blog/rtx-5090-vs-rtx-4090")
_BLOG = ("2025", "gpu.blog, instinct-mi300x")

_OFFERS: Final = (
    ("H100-SXM5-80GB", "AWS p5.48xlarge", 6.88, _VANTAGE),
    ("H200-SXM-141GB", "AWS p5en.48xlarge", 7.912, _VANTAGE),
    ("A100-40GB-SXM4", "AWS p4d.24xlarge", 2.7447, _VANTAGE),
    ("A100-80GB-SXM4", "AWS p4de.24xlarge", 3.4309, _VANTAGE),
    ("B200-SXM-180GB", "AWS p6-b200.48xlarge", 14.2416, _VANTAGE),
    ("B300-SXM-288GB", "AWS p6-b300.48xlarge", 17.802, _VANTAGE),
    ("L40S", "AWS g6e.xlarge", 1.861, _VANTAGE),
    ("L4", "AWS g6.xlarge", 0.8048, _VANTAGE),
    ("A10G", "AWS g5.xlarge", 1.006, _VANTAGE),
    ("T4", "AWS g4dn.xlarge", 0.526, _VANTAGE),
    ("V100-SXM2-32GB", "AWS p3.2xlarge", 3.06, _VANTAGE),
    ("H100-SXM5-80GB", "OCI BM.GPU.H100.8", 10.0, _OCI),
    ("H200-SXM-141GB", "OCI BM.GPU.H200.8", 10.0, _OCI),
    ("A100-80GB-SXM4", "OCI BM.GPU.A100-v2.8", 4.0, _OCI),
    ("A100-40GB-SXM4", "OCI BM.GPU4.8", 3.05, _OCI),
    ("L40S", "OCI BM.GPU.L40S.4", 3.5, _OCI),
    ("A10", "OCI VM.GPU.A10.1", 2.0, _OCI),
    ("B200-SXM-180GB", "OCI BM.GPU.B200.8", 14.0, _OCI),
    ("B300-SXM-288GB", "OCI BM.GPU.B300.8", 15.0, _OCI),
    ("MI300X", "OCI BM.GPU.MI300X.8", 6.0, _OCI),
    ("MI355X", "OCI BM.GPU.MI355X.8", 8.6, _OCI),
    ("GB200-186GB", "OCI BM.GPU.GB200.4", 16.0, _OCI),
    ("RTX-PRO-6000-Blackwell-Server", "OCI BM.GPU.RTXPRO.8", 4.5, _OCI),
    ("H100-SXM5-80GB", "Nebius gpu-h100-sxm", 2.95, _NEBIUS),
    ("H200-SXM-141GB", "Nebius gpu-h200-sxm", 3.5, _NEBIUS),
    ("L40S", "Nebius gpu-l40s-a", 1.5484, _NEBIUS),
    ("B200-SXM-180GB", "Nebius gpu-b200-sxm", 5.5, _NEBIUS),
    ("A10", "Lambda gpu_1x_a10", 1.29, _LAMBDA),
    ("A100-40GB-SXM4", "Lambda gpu_1x_a100_sxm4", 1.99, _LAMBDA),
    ("A100-80GB-SXM4", "Lambda gpu_8x_a100_80gb_sxm4", 2.79, _LAMBDA),
    ("H100-PCIe-80GB", "Lambda gpu_1x_h100_pcie", 3.29, _LAMBDA),
    ("RTX-A6000", "Lambda gpu_1x_a6000", 1.09, _LAMBDA),
    ("A100-80GB-PCIe", "RunPod, secure", 1.39, _RUNPOD),
    ("A100-80GB-PCIe", "Azure NC24ads_A100_v4", 3.67, _AZURE),
    ("H100-NVL-94GB", "Azure NC40ads_H100_v5", 6.98, _AZURE),
    ("T4", "Azure NC4as_T4_v3", 0.53, _AZURE),
    ("H100-SXM5-80GB", "median of 37 providers", 2.95, ("2026-05-20", "aimultiple.com/gpu-index")),
    ("MI300X", "TensorWave", 1.71, _BLOG),
    ("MI300X", "Vultr", 1.85, _BLOG),
    ("RTX-4090", "RunPod", 0.34, _DEPLOYBASE),
    ("RTX-5090", "RunPod", 0.69, _DEPLOYBASE),
    ("RTX-4090", "Spheron", 0.53, _SPHERON),
    ("RTX-5090", "Spheron", 0.86, _SPHERON),
    ("L40S", "Spheron", 0.72, _SPHERON),
)

PRICES: Final = tuple(
    GpuPrice(gpu=gpu, provider=provider, usd_per_gpu_hour=usd, date=date, source=source)
    for gpu, provider, usd, (date, source) in _OFFERS
)
"""Every known offer."""


def gpu_prices(gpu: Gpu) -> tuple[GpuPrice, ...]:
    """The known offers of that GPU, cheapest first; empty where there is none."""
    offers = [price for price in PRICES if price.gpu == gpu.name]
    return tuple(sorted(offers, key=lambda price: price.usd_per_gpu_hour))


def usd_per_gpu_hour(gpu: Gpu, provider: str | None = None) -> float | None:
    """The median of the known offers, or of those of a provider (the beginning of its name).

    None where no price is known (H20, Ascend).
    """
    offers = [
        price.usd_per_gpu_hour
        for price in gpu_prices(gpu)
        if provider is None or price.provider.lower().startswith(provider.lower())
    ]
    return statistics.median(offers) if offers else None
