"""GpuSample: one dated look at one GPU, or at one instance of a partitioned GPU."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["GpuId", "GpuOwner", "GpuSample", "Sharing", "SharingKind"]

SharingKind = Literal["mig", "mps", "time_slicing"]
"""mig: a part of its own, with its own counters; mps: processes at the same time on one GPU;
time_slicing: processes that take turns on it."""


class GpuId(msgspec.Struct, frozen=True, gc=False, order=True):
    """Which GPU: what is not known is empty. `instance` is a MIG GPU instance's id."""

    host: str = ""
    uuid: str = ""
    number: str = ""
    instance: str = ""

    @property
    def label(self) -> str:
        """For people: `0`, `GPU-4f.../3` with an instance, `node-1:0` with a host."""
        name = self.number or self.uuid or "cpu"
        name = f"{self.host}:{name}" if self.host else name
        return f"{name}/{self.instance}" if self.instance else name

    @property
    def whole(self) -> GpuId:
        """The GPU that it is, or is an instance of."""
        return GpuId(self.host, self.uuid, self.number)


class GpuOwner(msgspec.Struct, frozen=True, gc=False, order=True):
    """A workload that the GPU was given to; empty where that is not told."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


class Sharing(msgspec.Struct, frozen=True, gc=False):
    """How the GPU is shared. `parts`: sharers that were seen, None where they were not counted.

    `profile` is the instance's MIG profile (`1g.10gb`), empty otherwise. The share of the GPU that
    a part pays for is `mileage.measure.gpu_sharing`'s.
    """

    kind: SharingKind
    parts: int | None = None
    profile: str = ""


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One look at one GPU. Every figure is None where it is not known, never 0.

    Ratios are 0..1 and, as all rates, are means since the source's look before. Totals (`energy_j`)
    count from some time on, and may begin anew. `basis` "cpu": the machine has no GPU, and the
    processor cores of the engine's process stand for it: `sm_active_ratio` is their busy share.
    """

    gpu: GpuId
    at_s: float
    """Seconds on the reader's monotonic clock."""
    model: str | None = None
    """As the driver calls it."""
    basis: Literal["gpu", "cpu"] = "gpu"

    gpu_util_ratio: float | None = None
    """Time in which at least one kernel ran: near 1 with a single request already."""
    gr_active_ratio: float | None = None
    """Time in which the compute engine had work: the same for an instance."""
    mem_copy_util_ratio: float | None = None
    """Time in which device memory was read or written."""
    sm_active_ratio: float | None = None
    """Cycles in which a multiprocessor had work, mean over all of them."""
    sm_occupancy_ratio: float | None = None
    """Resident warps of those that there is room for."""
    tensor_active_ratio: float | None = None
    """Cycles in which the tensor pipes were active."""
    dram_active_ratio: float | None = None
    """Of the memory's cycles; near 0.8 is the most that programs reach."""

    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_bytes_per_s_max: float | None = None
    """In one direction, all links together; 0: it has none."""
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_bytes_per_s_max: float | None = None
    """In one direction."""

    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_largest_free_bytes: int | None = None
    """The largest single piece that could be allocated; drivers do not tell it."""

    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: frozenset[str] | None = None
    """Why clocks are lower than they could be; empty: for no reason."""

    sharing: Sharing | None = None
    """None: shared with nobody, as far as the source sees."""
    owners: tuple[GpuOwner, ...] = ()
    pids: tuple[int, ...] | None = None
    """Processes that compute on it, by the machine's own numbers."""
    doubts: tuple[str, ...] = ()
    """What the source told and is not believed, and why."""

    @property
    def nvlink_ratio(self) -> float | None:
        """Of the links' maximum, in the busier direction; 0 where the GPU has no links."""
        if self.nvlink_bytes_per_s_max == 0.0:
            return 0.0
        return _busier(
            self.nvlink_tx_bytes_per_s, self.nvlink_rx_bytes_per_s, self.nvlink_bytes_per_s_max
        )

    @property
    def pcie_ratio(self) -> float | None:
        """Of the slot's maximum, in the busier direction."""
        return _busier(
            self.pcie_tx_bytes_per_s, self.pcie_rx_bytes_per_s, self.pcie_bytes_per_s_max
        )

    @property
    def link(self) -> tuple[str, float | None]:
        """Name and use of the link to other GPUs: NVLink where it is there or may be, PCIe for GPUs
        without it. A processor has neither: 0."""
        if self.basis == "gpu" and self.nvlink_bytes_per_s_max == 0.0:
            return "pcie_ratio", self.pcie_ratio
        return "nvlink_ratio", 0.0 if self.basis == "cpu" else self.nvlink_ratio

    @property
    def kernel_time_ratio(self) -> float | None:
        """Time in which anything ran: what is missing to 1 are gaps."""
        return self.gpu_util_ratio if self.gpu_util_ratio is not None else self.gr_active_ratio


def _busier(sent: float | None, received: float | None, most: float | None) -> float | None:
    known = [rate for rate in (sent, received) if rate is not None]
    if not known or most is None or most <= 0.0:
        return None
    return min(1.0, max(known) / most)
