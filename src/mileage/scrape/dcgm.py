"""DCGM: the share of streaming multiprocessors in use, from the page of a DCGM exporter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mileage.core.errors import EngineError
from mileage.scrape.prometheus import parse
from mileage.wire.fetch import Fetch
from mileage.wire.url import display_url

__all__ = ["DcgmSource", "sm_active"]

BODY_BYTES_MAX = 8 * 1024 * 1024
SAMPLES_MAX = 20_000
RATIO_MAX = 1 + 1e-6
GPU_UTIL_BUSY = 99.0
_SM_ACTIVE, _GPU_UTIL = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
_NAMES = frozenset(
    spelling for name in (_SM_ACTIVE, _GPU_UTIL) for spelling in (name, name.lower())
)


class DcgmSource:
    """Reads a DCGM exporter (NVIDIA/dcgm-exporter); `gpu_ids` are the replica's GPUs, () all."""

    def __init__(self, url: str, gpu_ids: Sequence[str], *, fetch: Fetch, timeout_s: float) -> None:
        self._url, self._gpu_ids = url, tuple(gpu_ids)
        self._fetch, self._timeout_s = fetch, timeout_s

    async def read(self) -> float:
        """Mean SM_ACTIVE of the GPUs. Raises EngineError where it is not known."""
        response = await self._fetch(
            self._url, timeout_s=self._timeout_s, body_bytes_max=BODY_BYTES_MAX
        )
        if not 200 <= response.status < 300:
            raise EngineError(display_url(self._url), f"answered {response.status}")
        try:
            return sm_active(response.body, self._gpu_ids)
        except ValueError as error:
            raise EngineError(display_url(self._url), str(error)) from error

    def close(self) -> None:
        """Nothing is held."""


class _Unit(NamedTuple):
    """A GPU, or a MIG instance of one; `instance` is '' for the whole."""

    host: str
    uuid: str
    number: str
    instance: str

    def is_called(self, gpu_id: str) -> bool:
        gpu, _, instance = gpu_id.partition("/")
        return gpu in (self.number, self.uuid) and instance in ("", self.instance)


def sm_active(body: bytes, gpu_ids: Sequence[str] = ()) -> float:
    """Mean of DCGM_FI_PROF_SM_ACTIVE over the GPUs, 0..1; `body` is the exporter's page.

    A GPU is named by its index, its UUID, or either with `/` and a MIG instance's id. Raises
    ValueError, which says why, where the figure is missing for one of them or cannot be true. It
    cannot be 0 while GPU_UTIL is 100: some kernel ran all the time, on one multiprocessor at least.
    That is a known failure of the profiling fields (NVIDIA/dcgm-exporter#662), and a GPU that is
    taken to be idle for it would be given ever more, or ever less, work. Other fields are no
    substitute: GPU_UTIL and GR_ENGINE_ACTIVE are 1 as soon as any kernel runs.
    """
    exposition = parse(body, _NAMES, samples_max=SAMPLES_MAX)
    if exposition.truncated:
        raise ValueError("no usable page: too many series or bad lines")
    active: dict[_Unit, float | None] = {}
    util: dict[_Unit, float] = {}
    for sample in exposition.samples:
        unit = _unit(sample.labels)
        if sample.name.upper() == _GPU_UTIL:
            util[unit] = sample.value or 0.0
        # Where several pods share a GPU, each has a series, and all say the same.
        elif unit not in active or active[unit] is not None:
            active[unit] = _ratio(sample.value, active.get(unit))
    if not active:
        raise ValueError(f"has no {_SM_ACTIVE}: its list of counters leaves that out by default")
    chosen = [unit for gpu_id in gpu_ids for unit in _called(gpu_id, active)] or _wholes(active)
    values = [_value(unit, active[unit], util.get(unit)) for unit in dict.fromkeys(chosen)]
    return min(1.0, sum(values) / len(values))


def _unit(labels: Mapping[str, str]) -> _Unit:
    return _Unit(
        labels.get("Hostname", ""),
        labels.get("UUID") or labels.get("uuid", ""),
        labels.get("gpu", ""),
        labels.get("GPU_I_ID", ""),
    )


def _ratio(value: float | None, before: float | None) -> float | None:
    """None for what is no share, such as DCGM's blanks: 9223372036854775794, 140737488355328."""
    if value is None or not 0 <= value <= RATIO_MAX:
        return None
    return value if before is None else max(value, before)


def _called(gpu_id: str, active: Mapping[_Unit, float | None]) -> list[_Unit]:
    found = _wholes([unit for unit in active if unit.is_called(gpu_id)])
    if not found:
        known = sorted({unit.number or unit.uuid for unit in active})
        raise ValueError(f"has no GPU {gpu_id}; it has {', '.join(known)}")
    if len({(unit.host, unit.uuid) for unit in found}) > 1:
        raise ValueError(f"has several GPUs {gpu_id}, of several machines: name them by UUID")
    return found


def _wholes(units: Iterable[_Unit]) -> list[_Unit]:
    """All of them, but no instances of a GPU that is there as a whole."""
    units = list(units)
    whole = {(unit.host, unit.uuid, unit.number) for unit in units if not unit.instance}
    return [u for u in units if not u.instance or (u.host, u.uuid, u.number) not in whole]


def _value(unit: _Unit, value: float | None, util: float | None) -> float:
    name = f"GPU {unit.number or unit.uuid}{'/' if unit.instance else ''}{unit.instance}"
    if value is None:
        raise ValueError(f"{_SM_ACTIVE} of {name} has no possible value")
    if value == 0 and util is not None and util >= GPU_UTIL_BUSY:
        raise ValueError(
            f"{_SM_ACTIVE} of {name} is 0 while {_GPU_UTIL} is {util:g}: DCGM's profiling has"
            " stopped; `dcgmi dmon -e 1002 -c 1` or a restart of the exporter mostly revives it"
        )
    return value
