"""Watching GPUs: new pages alone count, a source that fails is told, limits beside figures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mileage.core.errors import EngineError
from mileage.scrape.doctor_gpu import GpuRecord, dcgm_limits, nvml_limits, watch_gpus
from mileage.wire.fetch import FetchResponse

PAGE = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="n"} %d\n'


def watched(answers: Iterator[bytes | Exception], looks: int) -> GpuRecord:
    times = iter(range(10_000))

    async def fetch(url: str, **_: Any) -> FetchResponse:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return FetchResponse(200, (), answer)

    return asyncio.run(
        watch_gpus(
            ["http://n:9400/metrics"],
            window_s=2 * looks - 1,
            fetch=fetch,
            clock=lambda: float(next(times)),
            period_s=0.0,
        )
    )


def test_a_page_that_stays_the_same_is_one_look() -> None:
    pages = [(PAGE % value).encode() for value in (10, 10, 30)]
    record = watched(iter(pages), 3)
    assert [sample.gpu_util_ratio for sample in record.samples] == [0.1, 0.3]
    assert record.notes == {}


def test_a_source_that_tells_nothing_says_why() -> None:
    record = watched(iter([EngineError("n", "refused")] * 3), 3)
    assert record.samples == []
    assert record.notes == {"dcgm http://n:9400/metrics": "refused"}


def test_one_failed_look_among_others_is_no_failure() -> None:
    page = (PAGE % 10).encode()
    record = watched(iter([page, EngineError("n", "refused"), b"other"]), 3)
    assert len(record.samples) == 1
    assert record.notes == {}


def test_limits_of_a_page_without_its_blank_values() -> None:
    body = b"""DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a"} 79
DCGM_FI_DEV_SLOWDOWN_TEMP{gpu="0",UUID="GPU-a"} 90
DCGM_FI_DEV_MAX_SM_CLOCK{gpu="0",UUID="GPU-a"} 1980
DCGM_FI_DEV_SLOWDOWN_TEMP{gpu="1",UUID="GPU-b"} 2147483632
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-b"} NaN
"""
    (limits,) = dcgm_limits(body)
    assert (limits.gpu.uuid, limits.last_xid) == ("GPU-a", 79)
    assert (limits.slowdown_temp_c, limits.sm_clock_max_hz) == (90, 1.98e9)


class NvmlError(Exception):
    """As NVML's."""


def test_the_driver_tells_limits_as_far_as_it_has_them() -> None:
    def threshold(*_: object) -> int:
        raise NvmlError

    shut: list[bool] = []
    nvml = SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_THRESHOLD_SLOWDOWN=1,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: shut.append(True),
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUUID=lambda _: b"GPU-a",
        nvmlDeviceGetMaxClockInfo=lambda *_: 1980,
        nvmlDeviceGetTemperatureThreshold=threshold,
    )
    (limits,) = nvml_limits(load=lambda: nvml)
    assert (limits.gpu.uuid, limits.sm_clock_max_hz) == ("GPU-a", 1.98e9)
    assert limits.slowdown_temp_c is None
    assert shut == [True]


def test_a_driver_that_does_not_start_is_told() -> None:
    def init() -> None:
        raise NvmlError("no driver")

    nvml = SimpleNamespace(NVMLError=NvmlError, nvmlInit=init)
    with pytest.raises(EngineError, match="no driver"):
        nvml_limits(load=lambda: nvml)
