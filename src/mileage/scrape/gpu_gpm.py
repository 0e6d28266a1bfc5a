"""NVML's GPM: counters of a GPU's multiprocessors, memory and links between two looks."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["GpmReader"]

_MIB: Final = 2**20


class GpmReader:
    """One GPU or MIG instance of Hopper and newer: two samples that are compared, in one call.

    `device` is the whole GPU's handle. Raises NVMLError where a call fails.
    """

    def __init__(self, nvml: Any, device: Any, instance: int | None = None) -> None:
        self._nvml, self._device, self._instance = nvml, device, instance
        self._old, self._new = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._began = False
        self._fields: Final = {
            nvml.NVML_GPM_METRIC_GRAPHICS_UTIL: ("gr_active_ratio", None),
            nvml.NVML_GPM_METRIC_SM_UTIL: ("sm_active_ratio", None),
            nvml.NVML_GPM_METRIC_SM_OCCUPANCY: ("sm_occupancy_ratio", None),
            nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: ("tensor_active_ratio", None),
            nvml.NVML_GPM_METRIC_DRAM_BW_UTIL: ("dram_active_ratio", None),
            nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: ("pcie_tx_bytes_per_s", _MIB),
            nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: ("pcie_rx_bytes_per_s", _MIB),
            nvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: ("nvlink_tx_bytes_per_s", _MIB),
            nvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: ("nvlink_rx_bytes_per_s", _MIB),
        }
        # Some kilobytes, made and filled once; access to its members is what a look costs here.
        self._asked = nvml.c_nvmlGpmMetricsGet_t()
        self._asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._asked.numMetrics = len(self._fields)
        self._metrics = [self._asked.metrics[place] for place in range(len(self._fields))]
        for metric, metric_id in zip(self._metrics, self._fields, strict=True):
            metric.metricId = metric_id

    def read(self) -> dict[str, float]:
        """Figures since the last call, by the attributes of GpuSample; none the first time.

        A metric that this GPU does not have is left out.
        """
        nvml = self._nvml
        self._old, self._new = self._new, self._old
        if self._instance is None:
            nvml.nvmlGpmSampleGet(self._device, self._new)
        else:
            nvml.nvmlGpmMigSampleGet(self._device, self._instance, self._new)
        if not self._began:
            self._began = True
            return {}
        asked = self._asked
        asked.sample1, asked.sample2 = self._old, self._new
        nvml.nvmlGpmMetricsGet(asked)
        return {
            name: _scaled(metric.value, scale)
            for metric, (name, scale) in zip(self._metrics, self._fields.values(), strict=True)
            if metric.nvmlReturn == nvml.NVML_SUCCESS
        }

    def free(self) -> None:
        """Free the samples."""
        self._nvml.nvmlGpmSampleFree(self._old)
        self._nvml.nvmlGpmSampleFree(self._new)


def _scaled(value: float, scale: int | None) -> float:
    """Percent to a ratio where there is no scale."""
    return value / 100 if scale is None else value * scale
