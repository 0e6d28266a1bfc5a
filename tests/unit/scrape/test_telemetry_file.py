"""Saved telemetry: what is written is read again; pages of an exporter one after another."""

from __future__ import annotations

import pytest

from mileage.core.errors import TraceError
from mileage.measure.gpu_sample import GpuId, GpuOwner, GpuSample, Sharing
from mileage.measure.serving_host import HostMoment, LoadMoment
from mileage.measure.telemetry import Telemetry
from mileage.scrape.telemetry_file import pages_of, read_telemetry, telemetry_lines

SAMPLE = GpuSample(
    gpu=GpuId("h", "u", "0", "3"),
    at_s=1.5,
    sm_active_ratio=0.25,
    throttle_reasons=frozenset({"sw_power_cap"}),
    sharing=Sharing("mig", profile="1g.10gb"),
    owners=(GpuOwner("n", "p", "c"),),
    pids=(1, 2),
    doubts=("x: why",),
)
PAGE = b"""# HELP DCGM_FI_DEV_GPU_UTIL use
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0"} %d
DCGM_FI_DEV_GPU_UTIL{gpu="1"} 7
# HELP DCGM_FI_DEV_MEM_COPY_UTIL memory
DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0"} 9
"""


def test_what_is_written_is_read_again() -> None:
    telemetry = Telemetry(
        samples=(SAMPLE,),
        hosts=(HostMoment(at_s=1.0, cpu_ratio=0.5),),
        loads=(LoadMoment(at_s=1.0, running=0),),
        missing={"host": "why"},
        zero_at_utc_ns=1_793_491_200_000_000_001,
    )
    data = b"".join(telemetry_lines(telemetry))
    assert read_telemetry(data, path="x") == telemetry


def test_a_file_without_a_time_of_day_is_read_all_the_same() -> None:
    data = b'{"telemetry":1}\n{"gpu":{"gpu":{},"at_s":1.0},"zero_at_utc_ns":5}\n'
    assert read_telemetry(data, path="x").zero_at_utc_ns is None


def test_pages_one_after_another() -> None:
    data = PAGE % 10 + PAGE % 20 + PAGE % 30
    assert [line for line, _ in pages_of(data)] == [1, 7, 13]
    samples = read_telemetry(data, path="x", gpu_ids=("0",), period_s=2.0).samples
    assert [(s.at_s, s.gpu_util_ratio) for s in samples] == [(0.0, 0.1), (2.0, 0.2), (4.0, 0.3)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"hello\n", "x:1: has no figure of a GPU", id="text"),
        pytest.param(PAGE % 1 + b"\n\n" + b"# nothing\n", None, id="comments at the end"),
        pytest.param(b'{"gpu": {}}\n', "x:1: is no line", id="no identity"),
        pytest.param(b'{"telemetry": 2}\n', "x:1: is not telemetry of version 1", id="version"),
        pytest.param(b'{"telemetry":1}\n{"what":1}\n', "x:2: is no line", id="an unknown field"),
        pytest.param(b'{"telemetry":1}\n\n{"gpu":', "x:3: is no line", id="cut off"),
        pytest.param(b'{"telemetry":1}\n\xff\n', "x:2: is no line", id="not text"),
    ],
)
def test_a_bad_file_is_told_with_its_line(data: bytes, message: str | None) -> None:
    if message is None:
        assert read_telemetry(data, path="x").samples
        return
    with pytest.raises(TraceError, match=message):
        read_telemetry(data, path="x")
