"""Gpu: what one accelerator can do at its best, by public documents."""

from __future__ import annotations

import msgspec

__all__ = ["Gpu"]

_MIB = 1 << 20
_PCIE_GB_PER_S = {3: 15.8, 4: 31.5, 5: 63.0, 6: 121.0}
"""One direction of 16 lanes, after encoding."""
_USABLE_RATIO = 0.985
"""Of the memory of the data sheet, in GiB: where the driver's own figure is not known."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One accelerator. Rates are peaks of the data sheet, dense, with FP32 accumulation.

    A rate is None where the hardware lacks it, or where no public figure was found.
    """

    name: str
    aliases: tuple[str, ...] = ()
    half_tflops: float
    """FP16 and, where `bf16`, BF16 on tensor cores."""
    bf16: bool = True
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    int8_tops: float | None = None
    memory_gb: float
    """As it is sold (80 for an A100-80GB)."""
    memory_mib: int | None = None
    """As the driver reports it; None where that is not known."""
    bandwidth_gb_per_s: float
    nvlink_gb_per_s: float | None = None
    """Both directions, all links of one GPU together (or XGMI, HCCS); None where it has none."""
    domain_gpus: int = 8
    """GPUs that are joined without a network: those of a machine, or of an NVLink rack."""
    pcie: int = 4
    """Generation; 16 lanes."""
    power_w: float
    source: str
    """Public documents that the figures are from."""
    unverified: tuple[str, ...] = ()
    """Fields whose figure was not checked against the maker's document, or where sources differ."""
    note: str = ""

    @property
    def memory_bytes(self) -> int:
        """Bytes that programs can have, as the driver reports them."""
        if self.memory_mib is not None:
            return self.memory_mib * _MIB
        return int(self.memory_gb * _USABLE_RATIO * (1 << 30))

    @property
    def pcie_gb_per_s(self) -> float:
        """One direction of the slot."""
        return _PCIE_GB_PER_S[self.pcie]
