"""Section `[bottleneck]`: from where on a dimension counts as what holds the GPUs up."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range

__all__ = ["BottleneckConfig"]


class BottleneckConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[bottleneck]`: thresholds of `mileage cost bottleneck`."""

    gpu_util_min: float = 0.85
    """Compute bound: GPU_UTIL above this, and MEM_COPY_UTIL below `mem_copy_util_max`."""
    mem_copy_util_max: float = 0.40
    """Compute bound: MEM_COPY_UTIL, or DRAM_ACTIVE, below this."""
    sm_active_min: float = 0.85
    """Compute bound: SM_ACTIVE above this. Where it is known, GPU_UTIL is not asked."""
    mem_copy_util_min: float = 0.70
    """Memory bound: MEM_COPY_UTIL above this."""
    dram_active_min: float = 0.60
    """Memory bound: DRAM_ACTIVE above this; programs that only copy reach about 0.8. Where it is
    known, MEM_COPY_UTIL is not asked."""
    nvlink_quiet_max: float = 0.90
    """Memory bound: the links below this share of their maximum."""
    nvlink_min: float = 0.92
    """Interconnect bound: the links above this share, while latency is raised."""
    latency_jump: float = 1.2
    """Interconnect bound: the gap between tokens is so many times its usual length."""
    link_busy_min: float = 0.50
    """Interconnect bound, too: links above this share while compute and memory idle."""
    link_idle_max: float = 0.40
    """Interconnect bound: compute and memory idle below this share."""
    gap_util_max: float = 0.70
    """Host bound: kernels run in less than this share of the time, though there are requests."""
    thread_min: float = 0.90
    """Host bound: a thread of engine or gateway is busy for this share of the time."""
    core_min: float = 0.95
    """Host bound: all cores together are busy for this share of the time."""
    throttled_min: float = 0.05
    """Host bound: the engine's control group is stopped by its CPU quota for this share."""
    pressure_min: float = 0.20
    """Host bound: tasks wait for a core, memory or the disk for this share (PSI)."""
    host_memory_gb_per_s: float | None = None
    """Memory bandwidth of a machine without a GPU, in 1e9 bytes per second, for `DRAM_ACTIVE` of
    its processor. Without it the use of the processor's memory is unknown."""
    held_min: float = 0.50
    """A dimension is named where its rule held in this share of the looks."""
    samples_min: int = 10
    """Fewer looks at a GPU are not enough evidence."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name not in ("latency_jump", "samples_min", "host_memory_gb_per_s"):
                require_range(f"bottleneck.{name}", getattr(self, name), 0, 1)
        require_at_least("bottleneck.latency_jump", self.latency_jump, 1)
        if self.host_memory_gb_per_s is not None:
            bandwidth = self.host_memory_gb_per_s
            require_positive("bottleneck.host_memory_gb_per_s", bandwidth, "GB/s")
        require_positive("bottleneck.held_min", self.held_min, "a share")
        require_range("bottleneck.samples_min", self.samples_min, 1, 1_000_000)
