"""NVML's field values of one GPU: many figures in one call into the driver."""

from __future__ import annotations

from typing import Any, Final

from mileage.measure.counter_rates import CounterRates

__all__ = ["FieldReader"]

_KIB: Final = 1024
_MEGA: Final = 1e6
_ALL_LINKS: Final = 0xFFFFFFFF
"""As the scope of a field: the sum over a GPU's links (nvml.h)."""
_COUNTERS: Final = (("nvlink_tx", _KIB), ("nvlink_rx", _KIB), ("pcie_tx", 1), ("pcie_rx", 1))


class FieldReader:
    """Totals and speeds of links, energy and power of one GPU by nvmlDeviceGetFieldValues.

    POWER_INSTANT takes microseconds, the byte counters some hundred; nvmlDeviceGetPcieThroughput
    waits for 20 ms and POWER_AVERAGE for some: those are not asked for. `counters`: whether the
    byte counters are wanted, as they are where GPM does not tell them. A field that this GPU, or
    its driver, does not have is not asked for again. Raises NVMLError where the whole call fails.
    """

    def __init__(self, nvml: Any, device: Any, *, counters: bool) -> None:
        self._nvml, self._device = nvml, device
        self._rates = CounterRates()
        self._often: dict[Any, str] = {
            nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: "energy",
            nvml.NVML_FI_DEV_POWER_INSTANT: "power",
        }
        self._once: dict[Any, str] = {
            nvml.NVML_FI_DEV_NVLINK_LINK_COUNT: "links",
            nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: "link_speed",
            nvml.NVML_FI_DEV_POWER_CURRENT_LIMIT: "limit",
        }
        self._seldom: dict[Any, str] = {}
        if counters:
            self._seldom = {
                (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS): "nvlink_tx",
                (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS): "nvlink_rx",
                # With protocol, as a link's speed is: after the payload alone, so preferred.
                (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX, _ALL_LINKS): "nvlink_tx",
                (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX, _ALL_LINKS): "nvlink_rx",
                nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: "pcie_tx",
                nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: "pcie_rx",
            }
        self._lasting: dict[str, float] = {}
        """What does not change, and the rates of the links since they were last asked for."""

    def read(self, at_s: float, *, rare: bool) -> dict[str, float]:
        """Figures by the attributes of GpuSample. The byte counters are read where `rare`, and
        their rates are since then; energy and power each time."""
        once, self._once = self._once, {}
        if once:
            self._keep_lasting(self._ask(once))
        seldom = self._seldom if rare else {}
        found = self._ask({**self._often, **seldom})
        if rare:
            self._keep_rates(found, at_s)
        figures = dict(self._lasting)
        for name, figure in (("power", "power_w"), ("energy", "energy_j")):
            if name in found:
                figures[figure] = found[name] / 1000
        return figures

    def _ask(self, fields: dict[Any, str]) -> dict[str, float]:
        """One call for all of them; those that are not there are never asked for again."""
        found: dict[str, float] = {}
        if not fields:
            return found
        values = self._nvml.nvmlDeviceGetFieldValues(self._device, list(fields))
        for (key, name), value in zip(fields.items(), values, strict=True):
            if value.nvmlReturn != self._nvml.NVML_SUCCESS:
                self._often.pop(key, None)
                self._seldom.pop(key, None)
            elif (number := self._number(value)) is not None:
                found[name] = number
        return found

    def _keep_lasting(self, found: dict[str, float]) -> None:
        if "limit" in found:
            self._lasting["power_limit_w"] = found["limit"] / 1000
        links, speed = found.get("links"), found.get("link_speed")
        if links == 0.0:
            self._lasting["nvlink_bytes_per_s_max"] = 0.0
        elif links is not None and speed is not None:
            self._lasting["nvlink_bytes_per_s_max"] = links * speed * _MEGA

    def _keep_rates(self, found: dict[str, float], at_s: float) -> None:
        for name, scale in _COUNTERS:
            total = found.get(name)
            rate = self._rates.rate(name, None if total is None else total * scale, at_s)
            self._lasting.pop(f"{name}_bytes_per_s", None)
            if rate is not None:
                self._lasting[f"{name}_bytes_per_s"] = rate

    def _number(self, value: Any) -> float | None:
        """The union's member that the driver says it has filled."""
        nvml, kind, union = self._nvml, value.valueType, value.value
        members = {
            nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
            nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
            nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
            nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
        }
        member = members.get(kind)
        return None if member is None else float(getattr(union, member))
