"""Telemetry of a gateway: where it looks, what it tells, and that nothing waits for a driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest

from mileage.cli.gateway_telemetry import GatewayTelemetry
from mileage.cli.telemetry_watches import Place, TelemetryWatches
from mileage.core.errors import EngineError
from mileage.engines.config import EngineConfig
from mileage.engines.remote import RemoteEngine, resolve
from mileage.gateway.admin.telemetry import GPUS_MAX, GpuMinuteRow
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.scrape.telemetry_config import TelemetryConfig
from mileage.storage.gpu_minutes import GpuMinute

CONFIG = TelemetryConfig(period_s=0.01, cpu_ratio_max=1.0)
EXPORTER = "http://node:9400/metrics"
WAIT_S = 60.0


class Gpu:
    """Gives one GPU until it is closed; hangs while `hangs` is set."""

    period_min_s = 0.0

    def __init__(self, *, host: str = "", number: str = "0", gpus: int = 1) -> None:
        self._ids = [GpuId(host=host, number=number if gpus == 1 else str(n)) for n in range(gpus)]
        self.hangs = False
        self.error: str | None = None
        self.released = threading.Event()
        self.inside = threading.Event()
        self.looked = threading.Semaphore(0)
        self.closed = threading.Event()

    def read(self, at_s: float) -> Sequence[GpuSample]:
        if self.hangs:
            self.inside.set()
            assert self.released.wait(WAIT_S)
        self.looked.release()
        if self.error is not None:
            raise EngineError("nvml", self.error)
        return [
            GpuSample(
                gpu=gpu, at_s=at_s, sm_active_ratio=0.75, memory_used_bytes=8, temperature_c=50.0
            )
            for gpu in self._ids
        ]

    def close(self) -> None:
        self.closed.set()

    def wait_looks(self, count: int) -> None:
        for _ in range(count):
            assert self.looked.acquire(timeout=WAIT_S)


class Site:
    """Telemetry whose sources are made up, with a clock that is set by hand."""

    def __init__(self, *, own_engine: bool = False) -> None:
        self.utc_s = 600.0
        self.rows: list[GpuMinute] = []
        self.opened: dict[Place, Gpu] = {}
        self.given: dict[Place, Gpu] = {}
        self.telemetry = GatewayTelemetry(
            self.rows.extend,
            partial(
                TelemetryWatches,
                host="here",
                open_source=self._open,
                utc_s=lambda: self.utc_s,
            ),
            own_engine=own_engine,
            utc_s=lambda: self.utc_s,
        )

    def _open(self, place: Place) -> Mapping[str, Gpu]:
        gpu = self.opened[place] = self.given.get(place, Gpu())
        return {f"{place.kind} {place.url}".strip(): gpu}


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    for gpu in site.opened.values():
        gpu.released.set()
    site.telemetry.stop()


def engine(name: str, **fields: object) -> RemoteEngine:
    return resolve(EngineConfig(kind="vllm", name=name, url=f"http://{name}:1", **fields), {})  # type: ignore[arg-type]


NVML = engine("local", nvml=True, gpu_ids=("1",))


@pytest.mark.parametrize(
    ("engines", "places"),
    [
        pytest.param([engine("a")], [], id="an engine that tells nothing of its GPUs"),
        pytest.param(
            [engine("a", dcgm_url=EXPORTER, gpu_ids=("0",)), engine("b", nvml=True)],
            [Place("dcgm", EXPORTER, ("0",)), Place("nvml")],
            id="an exporter and this machine's driver",
        ),
        pytest.param(
            [
                engine("a", dcgm_url=EXPORTER, gpu_ids=("0", "1")),
                engine("b", dcgm_url=EXPORTER, gpu_ids=("1", "2")),
            ],
            [Place("dcgm", EXPORTER, ("0", "1", "2"))],
            id="two engines of one exporter share a source",
        ),
        pytest.param(
            [NVML, engine("b", nvml=True)],
            [Place("nvml")],
            id="one that names no GPU has all",
        ),
    ],
)
def test_each_place_is_looked_at_once(
    site: Site, engines: list[RemoteEngine], places: list[Place]
) -> None:
    site.telemetry.configure(CONFIG, engines)
    assert list(site.opened) == places


def test_the_engine_of_our_own_stands_for_a_gpu() -> None:
    site = Site(own_engine=True)
    site.telemetry.configure(CONFIG, [])
    site.telemetry.stop()
    assert list(site.opened) == [Place("host")]


def test_a_minute_is_told_when_it_has_ended(site: Site) -> None:
    site.telemetry.configure(CONFIG, [NVML])
    gpu = site.opened[Place("nvml", "", ("1",))]
    gpu.wait_looks(3)
    assert (site.rows, site.telemetry.status().gpus) == ([], [])
    site.utc_s = 665.0
    gpu.wait_looks(3)
    first = GpuMinuteRow(
        host="here", gpu="0", minute_at_utc_s=600, sm_active_ratio=0.75, memory_used_bytes=8.0
    )
    assert site.telemetry.status().gpus == [first]
    assert {(row.host, row.gpu, row.minute_at_utc_s, row.field) for row in site.rows} == {
        ("here", "0", 600, name)
        for name in ("sm_active_ratio", "memory_used_bytes", "temperature_c")
    }
    site.utc_s = 781.0
    assert site.telemetry.status().gpus == []  # not a figure of now any more


def test_what_is_open_at_the_stop_is_told_by_it(site: Site) -> None:
    site.telemetry.configure(CONFIG, [NVML])
    site.opened[Place("nvml", "", ("1",))].wait_looks(2)
    site.telemetry.stop()
    assert {row.minute_at_utc_s for row in site.rows} == {600}


def test_how_each_source_goes_is_told(site: Site) -> None:
    place = Place("dcgm", EXPORTER)
    gpu = site.given[place] = Gpu()
    gpu.error = "no driver here"
    site.telemetry.configure(CONFIG, [engine("a", dcgm_url=EXPORTER), NVML])
    gpu.wait_looks(3)
    site.opened[Place("nvml", "", ("1",))].wait_looks(3)
    status = site.telemetry.status(dropped_total=4, error="disk full")
    assert (status.enabled, status.dropped_total, status.error) == (True, 4, "disk full")
    exporter, driver = status.sources
    assert exporter.source == f"dcgm {EXPORTER}"
    assert "no driver here" in str(exporter.error)
    assert exporter.failed_total >= 2
    assert (driver.error, driver.failed_total) == (None, 0)
    assert driver.period_s == pytest.approx(0.01, rel=1)


def test_a_reload_leaves_alone_what_stays_and_ends_what_goes(site: Site) -> None:
    old = engine("a", dcgm_url=EXPORTER)
    site.telemetry.configure(CONFIG, [old, NVML])
    kept, gone = site.opened[Place("nvml", "", ("1",))], site.opened[Place("dcgm", EXPORTER)]
    gone.wait_looks(2)
    site.telemetry.configure(CONFIG, [NVML, engine("b", dcgm_url="http://new:1/metrics")])
    assert gone.closed.wait(WAIT_S)
    assert site.opened[Place("nvml", "", ("1",))] is kept
    assert not kept.closed.is_set()
    kept.wait_looks(2)
    assert len(site.telemetry.status().sources) == 2
    site.telemetry.configure(TelemetryConfig(enabled=False), [NVML])
    assert kept.closed.wait(WAIT_S)
    status = site.telemetry.status()
    assert (status.enabled, status.sources) == (False, [])


def test_drivers_that_hang_hold_up_neither_the_others_nor_the_stop(site: Site) -> None:
    engines = [engine(name, dcgm_url=f"http://{name}:1/metrics") for name in "abcdef"]
    for name in "abcdef":
        gpu = site.given[Place("dcgm", f"http://{name}:1/metrics")] = Gpu()
        gpu.hangs = True
    began_s = time.monotonic()
    site.telemetry.configure(CONFIG, [*engines, NVML])
    for gpu in site.given.values():
        assert gpu.inside.wait(WAIT_S)
    site.opened[Place("nvml", "", ("1",))].wait_looks(3)
    hanging = [source for source in site.telemetry.status().sources if source.hanging_s > 0.0]
    assert len(hanging) >= 6
    stopping_s = time.monotonic()
    site.telemetry.stop()
    assert time.monotonic() - stopping_s < 8.0  # two seconds for all of them, not for each
    assert {row.field for row in site.rows} >= {"sm_active_ratio"}
    assert time.monotonic() - began_s < WAIT_S


def test_the_status_is_bounded_and_the_ledger_has_all(site: Site) -> None:
    place = Place("dcgm", EXPORTER)
    gpu = site.given[place] = Gpu(gpus=GPUS_MAX + 50)
    site.telemetry.configure(CONFIG, [engine("a", dcgm_url=EXPORTER)])
    gpu.wait_looks(1)
    site.telemetry.stop()
    assert len(site.telemetry.status().gpus) == GPUS_MAX
    assert len({row.gpu for row in site.rows}) == GPUS_MAX + 50
