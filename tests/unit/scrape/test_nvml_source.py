"""NVML's GPM through nvidia-ml-py: which GPUs are read, what fails, and what is given back."""

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
from mileage.scrape.nvml import NvmlSource
from tests.support.nvml_library import NvmlLibrary


def read(source: NvmlSource) -> float | None:
    return asyncio.run(source.read())


@pytest.mark.parametrize(
    ("gpu_ids", "ratio"),
    [
        pytest.param((), 0.5, id="all"),
        pytest.param(("1",), 0.8, id="by index"),
        pytest.param(("GPU-0",), 0.2, id="by UUID"),
        pytest.param(("0", "GPU-1"), 0.5, id="two"),
        pytest.param(("1/3",), 0.4, id="a MIG instance"),
    ],
)
def test_the_mean_of_sm_util_between_two_readings(gpu_ids: tuple[str, ...], ratio: float) -> None:
    library = NvmlLibrary(2)
    library.busy = {0: 20.0, 1: 80.0, (1, 3): 40.0}
    with library.loaded():
        source = NvmlSource(gpu_ids)
        assert read(source) is None  # there is nothing to compare with yet
        assert read(source) == pytest.approx(ratio)
        library.busy = dict.fromkeys(library.busy, 100.0)
        assert read(source) == 1.0
        source.close()
    assert (library.sessions, library.samples) == (0, {})


def test_closing_a_source_that_was_never_read_does_nothing() -> None:
    NvmlSource(("0",)).close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            {"fails": {"nvmlInitWithFlags": pynvml.NVML_ERROR_DRIVER_NOT_LOADED}},
            "Driver Not Loaded",
            id="no driver",
        ),
        pytest.param({"gpus": 1}, "Invalid Argument", id="no such GPU"),
        pytest.param({"supported": False}, "Hopper and newer", id="a GPU without GPM"),
        pytest.param(
            {"fails": {"nvmlGpmSampleGet": pynvml.NVML_ERROR_GPU_IS_LOST}}, "lost", id="a lost GPU"
        ),
    ],
)
def test_what_fails_is_told_and_tried_anew(change: dict[str, Any], reason: str) -> None:
    library = NvmlLibrary(2)
    library.busy = {0: 50.0, 1: 50.0}
    whole = {name: getattr(library, name) for name in change}
    with library.loaded():
        source = NvmlSource(("0", "1"))
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
    library = NvmlLibrary(1)
    library.busy, library.metric_fails = {0: value}, code
    with library.loaded():
        source = NvmlSource(())
        assert read(source) is None
        with pytest.raises(EngineError):
            read(source)
    assert (library.sessions, library.samples) == (0, {})


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(EngineError, match=r"pip install 'mileage\[gpu\]'"):
        read(NvmlSource(()))


def test_a_library_from_before_gpm_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    with pytest.raises(EngineError, match="too old"):
        read(NvmlSource(()))


def test_a_driver_that_hangs_takes_one_thread_and_no_more() -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def load() -> Any:
        asked.set()
        goes_on.wait(20)
        raise EngineError("nvml", "at last")

    async def story() -> None:
        source = NvmlSource((), load=load)
        first = asyncio.create_task(source.read())
        await asyncio.to_thread(asked.wait, 20)
        for _ in range(3):
            with pytest.raises(EngineError, match="has not come back"):
                await source.read()
        goes_on.set()
        with pytest.raises(EngineError, match="at last"):
            await first

    asyncio.run(story())
