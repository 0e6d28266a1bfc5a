"""How busy a replica's compute is, beside its metrics: neither spoils the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from mileage.core.errors import EngineError
from mileage.core.events import Observed, ReplicaDown
from mileage.core.replica import ReplicaView
from mileage.scrape import watch as module
from mileage.scrape.poller import Poller
from tests.support.fake_engine import FakeEngine, Heard, Watched, watched
from tests.support.loopback_server import Answer, Hang, http


def dcgm_page(active: str, util: str = "90") -> bytes:
    """An answer of a DCGM exporter with the replica's GPU 1 and another one."""
    labels = 'gpu="{}",UUID="GPU-{}"'
    return http(
        200,
        "".join(
            f"DCGM_FI_PROF_SM_ACTIVE{{{labels.format(gpu, gpu)}}} {value}\n"
            f"DCGM_FI_DEV_GPU_UTIL{{{labels.format(gpu, gpu)}}} {util}\n"
            for gpu, value in ((0, "0.9"), (1, active))
        ).encode(),
    )


def with_exporter(answer: Answer, **fields: Any) -> Callable[[FakeEngine], dict[str, Any]]:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths["/dcgm"] = answer
        return {"dcgm_url": f"{engine.url}/dcgm", "gpu_ids": ("1",), **fields}

    return prepare


async def until_view(w: Watched, is_it: Callable[[ReplicaView], bool]) -> ReplicaView:
    await w.heard.until(lambda: any(is_it(event.view) for event in w.heard.of(Observed)[-1:]))
    view: ReplicaView = w.heard.of(Observed)[-1].view
    return view


def test_views_have_the_share_of_the_replicas_gpus() -> None:
    async def story(w: Watched) -> None:
        view = await until_view(w, lambda view: view.compute_busy_ratio == 0.25)
        assert view.running == 3
        w.engine.paths["/dcgm"] = dcgm_page("0.75")
        await until_view(w, lambda view: view.compute_busy_ratio == 0.75)
        assert w.status().observation_error is None

    watched(story, with_exporter(dcgm_page("0.25")))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(http(503, b"x"), "/dcgm: answered 503", id="an error"),
        pytest.param(http(200, b"up 1\n"), "a DCGM exporter?", id="no such series"),
        pytest.param(dcgm_page("0", "100"), "profiling has stopped", id="the silent failure"),
        pytest.param(Hang(), "no answer within", id="no answer"),
    ],
)
def test_a_failing_exporter_makes_it_unknown_and_spoils_nothing(
    answer: Answer, reason: str
) -> None:
    async def story(w: Watched) -> None:
        await until_view(w, lambda view: view.compute_busy_ratio == 0.25)
        w.engine.paths["/dcgm"] = answer
        view = await until_view(w, lambda view: view.compute_busy_ratio is None)
        assert view.running == 3
        await w.heard.until(lambda: w.status().busy_error is not None)
        status = w.status()
        assert (status.state, status.scrape_error) == ("up", None)
        assert w.heard.of(ReplicaDown) == []
        assert reason in (status.observation_error or "")
        w.engine.paths["/dcgm"] = dcgm_page("0.5")
        await until_view(w, lambda view: view.compute_busy_ratio == 0.5)
        assert w.status().observation_error is None

    watched(story, with_exporter(dcgm_page("0.25"), scrape_timeout_s=0.1))


def test_failing_metrics_leave_the_last_view_alone() -> None:
    async def story(w: Watched) -> None:
        await until_view(w, lambda view: view.compute_busy_ratio == 0.25)
        w.engine.paths["/metrics"] = http(500)
        await w.engine.until_asked("/metrics", 2)
        heard = len(w.heard.of(Observed))
        await w.engine.until_asked("/dcgm", 3)
        assert len(w.heard.of(Observed)) == heard  # no view that forgets all but the share
        status = w.status()
        assert status.view is not None
        assert status.view.running == 3
        assert status.observation_error == status.scrape_error

    watched(story, with_exporter(dcgm_page("0.25")))


@pytest.mark.parametrize("urls", [True, False], ids=["its page is not there", "it has none"])
def test_an_engine_without_metrics_has_views_of_its_gpus(urls: bool) -> None:
    def prepare(engine: FakeEngine) -> dict[str, Any]:
        engine.paths["/metrics"] = http(404)
        fields = {} if urls else {"metrics_urls": ()}
        return {"kind": "openai", **fields, **with_exporter(dcgm_page("0.25"))(engine)}

    async def story(w: Watched) -> None:
        start_s = time.monotonic()
        view = await until_view(w, lambda view: view.compute_busy_ratio == 0.25)
        assert (view.replica, view.running, view.kv_cache_usage_ratio) == ("r", None, None)
        assert start_s - 1 < view.observed_s <= time.monotonic()
        assert w.poller.snapshot()[-1] == Observed(w.status().view or view)

    watched(story, prepare)


class Script:
    """A source that does what the test says; the first reading has nothing to compare with."""

    def __init__(self, first: float | Exception | None = None) -> None:
        self.result: float | Exception | None = first
        self.hangs = False
        self.reads = self.closed = 0

    async def read(self) -> float | None:
        self.reads += 1
        if self.hangs:
            await asyncio.Event().wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def close(self) -> None:
        self.closed += 1


def with_source(source: Script, story: Callable[[Watched], Awaitable[None]]) -> None:
    async def run() -> None:
        heard = Heard()
        async with FakeEngine() as engine:
            poller = Poller(emit=heard.emit, clock=time.monotonic, rng=Random(1))
            poller.add(engine.target(), busy=source)
            await poller.start()
            try:
                await story(Watched(engine, poller, heard))
            finally:
                await poller.stop()

    asyncio.run(run())
    assert source.closed == 1


def test_a_source_that_has_nothing_yet_is_no_error() -> None:
    source = Script()

    async def story(w: Watched) -> None:
        await w.heard.until(lambda: source.reads >= 2 and len(w.heard.of(Observed)) >= 2)
        assert w.heard.of(Observed)[-1].view.compute_busy_ratio is None
        assert w.status().observation_error is None
        source.result = 0.5
        await until_view(w, lambda view: view.compute_busy_ratio == 0.5)

    with_source(source, story)


def test_a_reading_that_never_comes_back_leaves_the_old_one_to_grow_stale() -> None:
    source = Script(0.5)

    async def story(w: Watched) -> None:
        await until_view(w, lambda view: view.compute_busy_ratio == 0.5)
        source.hangs = True
        view = await until_view(w, lambda view: view.compute_busy_ratio is None)
        assert view.running == 3

    with_source(source, story)


def test_it_is_not_read_while_the_replica_is_down() -> None:
    source = Script(EngineError("cpu", "the engine has no process now"))

    async def story(w: Watched) -> None:
        await w.heard.until(lambda: w.status().busy_error is not None)
        w.engine.paths["/health"] = http(500)
        await w.heard.until_heard(ReplicaDown)
        reads = source.reads
        await w.engine.until_asked("/health", 4 * module.BUSY_AGE_MAX_INTERVALS)
        assert source.reads <= reads + 1

    with_source(source, story)
