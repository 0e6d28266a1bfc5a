"""ReplicaWatch and Replicas.seen: what is on record of the time of replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mileage.cli.config import Config
from mileage.cli.replica_watch import ReplicaWatch
from mileage.cli.replicas import Replicas
from mileage.cli.sleepers import Sleepers
from mileage.core.events import Event, ReplicaDown, ReplicaUp
from mileage.core.replica import Adapter
from mileage.engines.config import EmbeddedConfig, EngineConfig
from mileage.ledger.replica_clock import ReplicaSeen
from mileage.ledger.replica_time import ReplicaTime

S = 10**9
UTC = 1_800_000_000 * S


class Site:
    """A watch over one replica, and the clocks it goes by."""

    def __init__(self) -> None:
        self.now_ns, self.state = 0, ReplicaSeen("warmup")
        self.rows: list[ReplicaTime] = []
        self.error: Exception | None = None
        self.watch = ReplicaWatch(
            lambda: {"a": self.state},
            self._store,
            monotonic_ns=lambda: self.now_ns,
            utc_ns=lambda: UTC + self.now_ns,
        )

    def _store(self, rows: Sequence[ReplicaTime]) -> None:
        if self.error is not None:
            raise self.error
        self.rows += rows

    def told(self) -> list[tuple[str, int, int]]:
        return [
            (row.state, (row.from_utc_ns - UTC) // S, (row.until_utc_ns - UTC) // S)
            for row in self.rows
        ]


def test_a_change_ends_a_stretch_and_so_does_the_end() -> None:
    async def story() -> None:
        site = Site()
        site.watch.start()
        site.now_ns, site.state = 3 * S, ReplicaSeen("up")
        site.watch.look()
        site.now_ns = 4 * S
        await site.watch.stop()
        assert site.told() == [("warmup", 0, 3), ("up", 3, 4)]

    asyncio.run(story())


def test_a_store_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        site = Site()
        site.watch.start()
        site.now_ns, site.error = 3 * S, OSError("full")
        site.watch.look()
        site.now_ns, site.error = 5 * S, None
        await site.watch.stop()
        assert site.told() == [("warmup", 3, 5)]

    asyncio.run(story())
    assert "could not be told" in caplog.text


def replicas(config: Config, model: Path | None = None) -> tuple[Replicas, list[Event]]:
    told: list[Event] = []
    made = Replicas(
        model,
        Path("/nowhere"),
        sleepers=lambda watcher: Sleepers(
            config,
            {},
            Path("/nowhere"),
            tell=told.append,
            watcher=watcher,
            live=lambda: (),
            changed=lambda: None,
        ),
        tell=told.append,
        observed=lambda view: None,
        forget=lambda name: None,
        changed=lambda: None,
        live=lambda: (),
    )
    if model is None:
        made.engines = made.plan(config).engines
    return made, told


def status(name: str, state: str, *, loading: bool = False) -> Any:
    return SimpleNamespace(name=name, state=state, loading=loading)


def test_what_remote_replicas_hold() -> None:
    engines = tuple(
        EngineConfig(kind="vllm", name=name, url=f"http://{name}:8000", gpus=gpus, gpu=gpu)
        for name, gpus, gpu in (
            ("a", 4.0, "h100"),
            ("b", 1.0, None),
            ("c", 0.5, "cpu"),
            ("d", 1, None),
        )
    )
    made, _ = replicas(Config(engines=engines))
    states = [
        status("a", "up"),
        status("b", "down"),
        status("c", "down", loading=True),
        status("d", "starting"),
        status("gone", "up"),
    ]
    made._poller = cast("Any", SimpleNamespace(status=lambda: states))
    assert made.seen() == {
        "a": ReplicaSeen("up", 4.0, "H100-SXM5-80GB"),
        "b": ReplicaSeen("down", 1.0, ""),
        "c": ReplicaSeen("warmup", 0.5, "cpu"),
    }


def test_what_is_disabled_is_down_for_those_who_load_adapters_too() -> None:
    engine = EngineConfig(kind="vllm", name="a", url="http://a:8000", lora_slots=2)
    made, told = replicas(Config(engines=(engine,)))
    down: list[str] = []
    made.desk = cast("Any", SimpleNamespace(down=down.append))
    assert made.set_enabled("a", False)
    assert (down, [type(event) for event in told]) == (["a"], [ReplicaDown])


@pytest.mark.parametrize(
    ("pid", "loading", "state"),
    [
        pytest.param(None, True, "warmup", id="its child loads the model"),
        pytest.param(7, False, "up", id="its child serves"),
        pytest.param(None, False, "down", id="it waits before the next start"),
    ],
)
def test_what_the_engine_of_our_own_holds(pid: int | None, loading: bool, state: Any) -> None:
    made, _ = replicas(Config(), Path("/m.gguf"))
    assert made.seen() == {}
    made._embedded = cast("Any", SimpleNamespace(pid=pid, loading=loading))
    assert made.seen() == {"embedded": ReplicaSeen("warmup", 1.0, "cpu")}
    made.engines = cast("Any", (SimpleNamespace(name="embedded"),))
    assert made.seen() == {"embedded": ReplicaSeen(state, 1.0, "cpu")}


def test_the_engine_of_our_own_runs_all_its_adapters() -> None:
    from mileage.cli.replicas import _adapters

    assert _adapters(EmbeddedConfig()) == ()
    config = EmbeddedConfig(lora=("/x/sql.gguf", "tone.gguf"), served_name="m")
    adapters = _adapters(config)
    assert adapters == (Adapter("m", "sql+tone", "m"),)
    made, told = replicas(Config(), Path("/m.gguf"))
    made._adapters = adapters
    made._heard(ReplicaUp("embedded", ("m",)))
    assert told == [ReplicaUp("embedded", ("m",), adapters)]
