"""GPUs on the page of a DCGM exporter: all figures of each, with instances and sharers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mileage.costmodel.gpu_names import gpu_of_driver, link_maxima
from mileage.measure.exposition import Sample, parse
from mileage.measure.gpu_checks import checked
from mileage.measure.gpu_sample import GpuId, GpuOwner, GpuSample, Sharing
from mileage.scrape.throttle_reasons import reasons_of

__all__ = ["dcgm_samples"]

SAMPLES_MAX: Final = 50_000
UNITS_MAX: Final = 2_048
_OWNERS_MAX: Final = 64
_TEXT_MAX: Final = 256
_BLANK: Final = 140_737_488_355_328.0
_BLANKS_32: Final = range(2_147_483_632, 2_147_483_637)
"""DCGM's values for what it does not know: this floating-point one, 64-bit ones above it, and the
32-bit ones."""
_MIB: Final = 2**20


class _Field(NamedTuple):
    """`per` of the exporter's unit is one of ours: dividing keeps 70 % exactly 0.7."""

    attribute: str
    times: float = 1
    per: float = 1


_FIELDS: Final[Mapping[str, _Field]] = {
    "DCGM_FI_DEV_GPU_UTIL": _Field("gpu_util_ratio", per=100),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _Field("mem_copy_util_ratio", per=100),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _Field("gr_active_ratio"),
    "DCGM_FI_PROF_SM_ACTIVE": _Field("sm_active_ratio"),
    "DCGM_FI_PROF_SM_OCCUPANCY": _Field("sm_occupancy_ratio"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _Field("tensor_active_ratio"),
    "DCGM_FI_PROF_DRAM_ACTIVE": _Field("dram_active_ratio"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": _Field("nvlink_tx_bytes_per_s"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": _Field("nvlink_rx_bytes_per_s"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _Field("pcie_tx_bytes_per_s"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _Field("pcie_rx_bytes_per_s"),
    "DCGM_FI_DEV_FB_USED": _Field("memory_used_bytes", _MIB),
    "DCGM_FI_DEV_FB_TOTAL": _Field("memory_total_bytes", _MIB),
    "DCGM_FI_DEV_FB_FREE": _Field("free", _MIB),
    "DCGM_FI_DEV_FB_RESERVED": _Field("reserved", _MIB),
    "DCGM_FI_DEV_POWER_USAGE": _Field("power_w"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": _Field("power_limit_w"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _Field("energy_j", per=1000),
    "DCGM_FI_DEV_SM_CLOCK": _Field("sm_clock_hz", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": _Field("memory_clock_hz", 1e6),
    "DCGM_FI_DEV_GPU_TEMP": _Field("temperature_c"),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": _Field("reasons"),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _Field("reasons"),
}
"""The PROF fields of links are rates, whatever type the exporter's list gives them.
DCGM_FI_DEV_NVLINK_BANDWIDTH_* are not read: their unit differs between versions of DCGM."""
_SPELLINGS: Final = {
    spelling: field for name, field in _FIELDS.items() for spelling in (name, name.lower())
}
_WHOLE_ONLY: Final = ("power_w", "power_limit_w", "energy_j")
"""Of an instance the exporter tells its whole GPU's: a sum over instances would count it again."""
_OWNER_LABELS: Final = (
    ("namespace", ("exported_namespace", "namespace", "pod_namespace")),
    ("pod", ("exported_pod", "pod", "pod_name")),
    ("container", ("exported_container", "container", "container_name")),
)
"""Prometheus renames a label that it sets itself; the oldest exporters said pod_name."""


def dcgm_samples(
    body: bytes,
    *,
    at_s: float,
    gpu_ids: Sequence[str] = (),
    figures: Collection[str] | None = None,
) -> tuple[GpuSample, ...]:
    """Each GPU, and each MIG instance, of an exporter's page, in order; checked.

    `gpu_ids`: index or UUID, each with `/` and an instance's id if it is one; () means all.
    `figures`: attributes of GpuSample that are wanted, None for all. Raises ValueError where the
    page has none of them of any GPU, lacks a GPU that was named, or has too many series. Blank
    values are unknown. A GPU that several pods share has a series for each: they are its owners.
    """
    names: Collection[str] = _SPELLINGS
    if figures is not None:
        names = {name for name, field in _SPELLINGS.items() if field.attribute in figures}
    exposition = parse(body, names, samples_max=SAMPLES_MAX)
    if exposition.truncated:
        raise ValueError("no usable page: too many series or bad lines")
    units: dict[GpuId, _Unit] = {}
    for sample in exposition.samples:
        gpu = _gpu(sample.labels)
        unit = units.get(gpu)
        if unit is None:
            if len(units) >= UNITS_MAX:
                raise ValueError(f"no usable page: more than {UNITS_MAX} GPUs")
            unit = units[gpu] = _Unit(sample.labels)
        unit.take(sample)
    if not units:
        wanted = "" if figures is None else f" ({', '.join(figures)})"
        raise ValueError(f"has no figure{wanted} of a GPU: is it the page of a DCGM exporter?")
    return tuple(units[gpu].sample(gpu, at_s) for gpu in _chosen(units, gpu_ids))


class _Unit:
    """What was read of one GPU or instance."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._model = _text(labels, "modelName", "DCGM_FI_DEV_NAME") or None
        self._profile = _text(labels, "GPU_I_PROFILE")
        self._values: dict[str, float] = {}
        self._owners: dict[GpuOwner, None] = {}

    def take(self, sample: Sample) -> None:
        """Add a series. Of several of one field all say the same; where not, the highest counts."""
        owner = GpuOwner(*(_text(sample.labels, *labels) for _, labels in _OWNER_LABELS))
        if owner.pod and len(self._owners) < _OWNERS_MAX:
            self._owners[owner] = None
        field, value = _SPELLINGS[sample.name], sample.value
        if value is None or not 0.0 <= value < _BLANK or value in _BLANKS_32:
            return
        name, value = field.attribute, value * field.times / field.per
        self._values[name] = max(value, self._values.get(name, value))

    def sample(self, gpu: GpuId, at_s: float) -> GpuSample:
        values = dict(self._values)
        mask = values.pop("reasons", None)
        free, reserved = values.pop("free", None), values.pop("reserved", 0.0)
        used = values.get("memory_used_bytes")
        if "memory_total_bytes" not in values and free is not None and used is not None:
            values["memory_total_bytes"] = free + used + reserved
        if gpu.instance:
            for name in _WHOLE_ONLY:
                values.pop(name, None)
        total = values.pop("memory_total_bytes", None)
        used = values.pop("memory_used_bytes", None)
        whole = None if gpu.instance else total
        known = None
        if self._model is not None:
            known = gpu_of_driver(self._model, memory_total_bytes=_bytes(whole))
        nvlink, pcie = link_maxima(known)
        return checked(
            GpuSample(
                gpu=gpu,
                at_s=at_s,
                model=self._model,
                memory_used_bytes=_bytes(used),
                memory_total_bytes=_bytes(total),
                nvlink_bytes_per_s_max=nvlink,
                pcie_bytes_per_s_max=pcie,
                throttle_reasons=reasons_of(mask),
                sharing=self._sharing(gpu),
                owners=tuple(sorted(self._owners)),
                **values,  # type: ignore[arg-type]  # names of _FIELDS
            )
        )

    def _sharing(self, gpu: GpuId) -> Sharing | None:
        """Pods on one unit take turns, or share it by MPS, which the page does not tell apart."""
        if len(self._owners) > 1:
            return Sharing("time_slicing", len(self._owners), self._profile)
        return Sharing("mig", profile=self._profile) if gpu.instance else None


def _bytes(value: float | None) -> int | None:
    return None if value is None else round(value)


def _gpu(labels: Mapping[str, str]) -> GpuId:
    return GpuId(
        _text(labels, "Hostname", "hostname"),
        _text(labels, "UUID", "uuid"),
        _text(labels, "gpu"),
        _text(labels, "GPU_I_ID"),
    )


def _text(labels: Mapping[str, str], *names: str) -> str:
    return next((text for name in names if (text := labels.get(name, ""))), "")[:_TEXT_MAX]


def _chosen(units: Iterable[GpuId], gpu_ids: Sequence[str]) -> list[GpuId]:
    """All, or those named, each once. A GPU that is named stands for its instances, too."""
    ordered = sorted(units, key=_natural)
    if not gpu_ids:
        return ordered
    found: dict[GpuId, None] = {}
    for gpu_id in gpu_ids:
        name, _, instance = gpu_id.partition("/")
        fits = [
            gpu
            for gpu in ordered
            if name in (gpu.number, gpu.uuid) and instance in ("", gpu.instance)
        ]
        if not fits:
            known = sorted({gpu.label for gpu in ordered})[:16]
            raise ValueError(f"has no GPU {gpu_id}; it has {', '.join(known)}")
        if len({(gpu.host, gpu.uuid) for gpu in fits}) > 1:
            raise ValueError(f"has several GPUs {gpu_id}, of several machines: name them by UUID")
        found.update(dict.fromkeys(fits))
    return list(found)


def _natural(gpu: GpuId) -> tuple[str, int, str, str, int, str]:
    """GPU 10 comes after GPU 9."""
    return gpu.host, *_number(gpu.number), gpu.uuid, *_number(gpu.instance)


def _number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isascii() and text.isdecimal() and len(text) < 9 else (-1, text)
