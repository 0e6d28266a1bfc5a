"""How busy GPUs are by NVML's GPM: which are read, what fails, and what is given back."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from types import ModuleType
from typing import Any

import pynvml
import pytest

from mileage.core.errors import EngineError
from mileage.scrape.busy import NVML, BusySource, GpuBusy, busy_source
from mileage.scrape.gpu_looks import NvmlLooks
from mileage.scrape.gpu_nvml import NvmlTelemetry
from mileage.scrape.target import PollTarget
from mileage.wire.fetch import fetch
from tests.support.nvml_telemetry import TelemetryLibrary


def read(source: BusySource) -> float | None:
    return asyncio.run(source.read())


def busy(*gpu_ids: str) -> BusySource:
    target = PollTarget(
        kind="vllm",
        name="a",
        url="http://a",
        health_urls=("http://a/health",),
        models_url="http://a/v1/models",
        nvml=True,
        gpu_ids=gpu_ids,
    )
    source = busy_source(target, fetch)
    assert source is not None
    return source


@pytest.mark.parametrize(
    ("gpu_ids", "parted", "ratio"),
    [
        pytest.param((), False, 0.5, id="all"),
        pytest.param(("1",), False, 0.8, id="by index"),
        pytest.param(("GPU-0",), False, 0.2, id="by UUID"),
        pytest.param(("0", "GPU-1"), False, 0.5, id="two"),
        pytest.param(("1/3",), True, 0.4, id="a MIG instance"),
        pytest.param(("1",), True, 0.5, id="all MIG instances of a GPU"),
    ],
)
def test_the_mean_of_sm_util_between_two_readings(
    gpu_ids: tuple[str, ...], parted: bool, ratio: float
) -> None:
    library = TelemetryLibrary(2)
    library.busy = {0: 20.0, 1: 80.0, (1, 3): 40.0, (1, 4): 60.0}
    if parted:
        library.instances[1] = {3: "1g.10gb", 4: "1g.10gb"}
    with library.loaded():
        source = busy(*gpu_ids)
        assert read(source) is None  # there is nothing to compare with yet
        assert read(source) == pytest.approx(ratio)
        library.busy = dict.fromkeys(library.busy, 100.0)
        assert read(source) == 1.0
        source.close()
    assert (library.sessions, library.samples) == (0, {})


def test_a_reading_makes_few_calls_into_the_driver() -> None:
    library = TelemetryLibrary(1)
    library.busy, library.kernel_percent = {0: 50.0}, {0: 80}
    with library.loaded():
        source = busy()
        read(source)
        library.calls.clear()
        assert read(source) == 0.5
        assert sorted(library.calls) == [
            "nvmlDeviceGetUtilizationRates", "nvmlGpmMetricsGet", "nvmlGpmSampleGet",
        ]  # fmt: skip
        source.close()


def test_a_counter_that_stands_still_at_full_load_is_not_believed() -> None:
    library = TelemetryLibrary(1)
    library.busy, library.kernel_percent = {0: 0.0}, {0: 100}
    with library.loaded():
        source = busy()
        assert read(source) is None
        with pytest.raises(EngineError, match="SM_UTIL of GPU 0: 0 while"):
            read(source)


def test_closing_a_source_that_was_never_read_does_nothing() -> None:
    busy("0").close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            {"fails": {"nvmlInitWithFlags": pynvml.NVML_ERROR_DRIVER_NOT_LOADED}},
            "Driver Not Loaded",
            id="no driver",
        ),
        pytest.param({"gpus": 1}, "nvml", id="no such GPU"),
        pytest.param({"supported": False}, "Hopper GPUs and newer", id="a GPU without GPM"),
        pytest.param(
            {"fails": {"nvmlGpmSampleGet": pynvml.NVML_ERROR_GPU_IS_LOST}}, "lost", id="a lost GPU"
        ),
    ],
)
def test_what_fails_is_told_and_tried_anew(change: dict[str, Any], reason: str) -> None:
    library = TelemetryLibrary(2)
    library.busy = {0: 50.0, 1: 50.0}
    whole = {name: getattr(library, name) for name in change}
    with library.loaded():
        source = busy("0", "1")
        vars(library).update(change)
        for _ in range(2):
            with pytest.raises(EngineError, match=reason):
                read(source)
            assert (library.sessions, library.samples) == (0, {})
        vars(library).update(whole)
        assert [read(source), read(source)] == [None, 0.5]
        source.close()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        pytest.param(50.0, pynvml.NVML_ERROR_NOT_SUPPORTED, id="the metric failed"),
        pytest.param(math.nan, 0, id="NaN"),
        pytest.param(-1.0, 0, id="negative"),
        pytest.param(250.0, 0, id="above 100 %"),
    ],
)
def test_an_impossible_figure_is_not_known(value: float, code: int) -> None:
    library = TelemetryLibrary(1)
    library.busy, library.metric_fails = {0: value}, code
    with library.loaded():
        source = busy()
        assert read(source) is None
        with pytest.raises(EngineError):
            read(source)
    assert (library.sessions, library.samples) == (0, {})


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(EngineError, match=r"pip install 'mileage\[gpu\]'"):
        read(busy())


def test_a_library_from_before_gpm_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    with pytest.raises(EngineError, match="too old"):
        read(busy())


def test_a_driver_that_hangs_takes_one_thread_and_no_more() -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def load() -> Any:
        asked.set()
        goes_on.wait(60)
        raise EngineError("nvml", "at last")

    async def story() -> None:
        source = GpuBusy(NvmlLooks(NvmlTelemetry(load=load)), NVML)
        first = asyncio.create_task(source.read())
        await asyncio.to_thread(asked.wait, 60)
        for _ in range(3):
            with pytest.raises(EngineError, match="has not come back"):
                await source.read()
        goes_on.set()
        with pytest.raises(EngineError, match="at last"):
            await first

    asyncio.run(story())
