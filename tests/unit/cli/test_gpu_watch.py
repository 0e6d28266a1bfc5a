"""Sampling beside a gateway: minutes of GPUs for the ledger, and what measured weights rest on."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from mileage.cli.gpu_watch import GpuWatch, gpu_sources, minutes_of
from mileage.measure.gpu_rollup import FigureRollup, GpuRollup
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.serving_host import HostMoment
from mileage.storage.gpu_minutes import GpuMinute


class Source:
    """Gives one GPU and the host, and tells when it was asked so many times."""

    period_min_s = 0.0

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.done = threading.Event()

    def read(self, at_s: float) -> Sequence[GpuSample | HostMoment]:
        self.left -= 1
        if self.left <= 0:
            self.done.set()
        gpu = GpuSample(
            gpu=GpuId(host="n1", number="3"), at_s=at_s, sm_active_ratio=0.8, dram_active_ratio=0.16
        )
        return HostMoment(at_s=at_s), gpu

    def close(self) -> None:
        """Nothing is held."""


def watched(source: Source, store: object, utc_s: object) -> GpuWatch:
    watch = GpuWatch({"a": source}, store, period_s=0.0, utc_s=utc_s)  # type: ignore[arg-type]
    watch.start()
    assert source.done.wait(60.0)
    return watch


def test_minutes_are_stored_when_they_end_and_at_the_end() -> None:
    rows: list[GpuMinute] = []
    times = iter([*[60.0] * 5, *[121.0] * 100_000])
    watch = watched(Source(12), rows.extend, times.__next__)
    watch.stop()
    firsts = [row for row in rows if row.minute_at_utc_s == 60]
    assert {(row.host, row.gpu, row.field, row.samples) for row in firsts} == {
        ("n1", "3", "sm_active_ratio", 5),
        ("n1", "3", "dram_active_ratio", 5),
    }
    last = [row for row in rows if row.minute_at_utc_s == 120]
    assert last[0].samples >= 7
    assert last[0].mean == pytest.approx(0.8)
    weights = watch.weights()
    assert weights is not None
    assert weights.compute_ratio == pytest.approx(0.8)
    assert watch.status()["a"].failed == 0


def test_a_ledger_that_fails_does_not_end_sampling(caplog: pytest.LogCaptureFixture) -> None:
    def store(rows: Sequence[GpuMinute]) -> None:
        raise OSError("disk full")

    times = iter([60.0 * n for n in range(100_000)])
    watch = watched(Source(12), store, times.__next__)
    watch.stop()
    assert watch.status()["a"].failed == 0
    assert "could not be stored" in caplog.text


def test_rows_are_of_figures_that_were_known() -> None:
    rollup = GpuRollup(
        minute_at_utc_s=60,
        gpu=GpuId(uuid="GPU-a", instance="3"),
        model=None,
        samples=9,
        figures={"power_w": FigureRollup(1.0, 3.0, 2.0, 8)},
        energy_j=None,
        throttled={},
    )
    assert minutes_of(rollup) == [GpuMinute(60, "", "GPU-a/3", "power_w", 1.0, 3.0, 8)]


def test_each_exporter_is_a_source_without_its_secrets() -> None:
    sources = gpu_sources(
        dcgm={"http://me:secret@a/metrics?k=secret": ("0",), "http://b/metrics": ()},
        nvml_gpu_ids=(),
        pids=lambda: [1],
    )
    assert list(sources) == ["dcgm http://a/metrics", "dcgm http://b/metrics", "nvml", "host"]
    assert gpu_sources() == {}
    for source in sources.values():
        source.close()
