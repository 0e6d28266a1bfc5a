"""A worker that is told of another configuration: what changes, in whom, and what must not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from mileage.cli.config import Config
from mileage.cli.hot_keys import HOT
from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action
from mileage.core.events import ConfigChanged, Event, Loadable, ReplicaUp
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway import worker as module
from mileage.gateway.channel import Channel
from mileage.gateway.config import GatewayConfig, ServerConfig, Upstream
from mileage.gateway.keys import key_hash
from mileage.gateway.messages import (
    Deliver,
    Drain,
    FromWorker,
    Mark,
    Marked,
    Ready,
    Reconfigure,
    Report,
    ToWorker,
)
from mileage.gateway.worker import Worker
from mileage.policy.residency.adapters import AdapterConfig

UP = Upstream(name="a", url="http://127.0.0.1:1")


class BrokenLog:
    """A request log that cannot be written."""

    def encode_intent(self, request: Request, arrived_at_utc_ns: int, /) -> bytes:
        return b""

    def encode_finish(self, timeline: RequestTimeline, /) -> bytes:
        return b""

    def write(self, records: Sequence[bytes]) -> bool:
        return False

    def close(self) -> None:
        pass


class Told(Controller):
    """A controller that keeps the configurations it was told."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.told: list[ConfigChanged] = []
        self.breaks = False

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        if isinstance(event, ConfigChanged):
            self.told.append(event)
            if self.breaks:
                raise RuntimeError("a bug")
        return super().handle(event, now_s)


class Running:
    """A worker in this process, and the supervisor's end of its channel."""

    def __init__(self, worker: Worker, channel: Channel[FromWorker], port: int) -> None:
        self.worker, self.channel, self.port = worker, channel, port
        controller = worker._driver.controller
        assert isinstance(controller, Told)
        self.controller = controller

    async def configure(self, config: GatewayConfig, version: int) -> Report:
        """Tell it; the report that it answers with."""
        count = len(self.controller.told)
        self.channel.send(Reconfigure(config, version))
        while True:
            message = await self.channel.receive()
            assert message is not None
            if isinstance(message, Report) and len(self.controller.told) > count:
                return message

    async def ask(self, path: str, *lines: str, body: bytes = b"") -> tuple[int, bytes]:
        """One request on a connection of its own: status, and the whole answer."""
        head = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", "Host: localhost", *lines]
        head += ["Connection: close", f"Content-Length: {len(body)}", "", ""]
        answer = await self.send("\r\n".join(head).encode() + body)
        return int(answer.split()[1]), answer

    async def send(self, data: bytes) -> bytes:
        """All that comes back on a connection of its own, until the worker closes it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def chat(self, *lines: str, model: str = "toy") -> int:
        body = {"model": model, "messages": [{"role": "user", "content": "x"}]}
        data = msgspec.json.encode(body)
        return (await self.ask("/v1/chat/completions", *lines, body=data))[0]


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Controller", Told)


def with_worker(
    check: Callable[[Running], Awaitable[None]], *, drain_timeout_s: float = 0.2
) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        channel: Channel[FromWorker] = await Channel.open(ours, FromWorker)
        worker = Worker(
            config(server=ServerConfig(drain_timeout_s=drain_timeout_s)),
            index=0,
            seed=1,
            request_log=BrokenLog(),
            channel=await Channel.open(theirs, ToWorker),
        )
        with socket.create_server(("127.0.0.1", 0)) as sock:
            sock.setblocking(False)
            running = asyncio.create_task(worker.run(sock))
            try:
                async with asyncio.timeout(20):
                    assert isinstance(await channel.receive(), Ready)
                    channel.send(Deliver((ReplicaUp("a", ("toy",)),)))
                    await check(Running(worker, channel, sock.getsockname()[1]))
                    channel.send(Drain())
                    await running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await channel.finish(1.0)

    asyncio.run(main())


def config(**fields: Any) -> GatewayConfig:
    return GatewayConfig(**{"upstreams": (UP,), **fields})


NAMES = ("given", "removed", "stays")
DIGEST = key_hash("a-key")
CHANGED: dict[str, Any] = {
    "breaker": {"failures_max": 9},
    "costs": {"usd_per_gpu_hour": 2},
    "engines": [{"kind": "vllm", "url": "http://b:1", "gpus": 2}],
    "governor": {"mode": "observe"},
    "loads": {"wait_max_s": 9},
    "merging": {"enabled": False},
    "routing": {"affinity": False},
    "slo": {"ttft_s": 2},
    "tenants": {"t": {"weight": 3}},
}
"""One key of each section that the controller decides by."""


@pytest.mark.parametrize("section", sorted(CHANGED))
def test_a_hot_section_reaches_the_controller(section: str) -> None:
    control = msgspec.convert({section: CHANGED[section]}, Config).control()
    assert control != Config().control()

    async def check(running: Running) -> None:
        report = await running.configure(config(control=control), 2)
        assert report.config_version == 2
        (event,) = running.controller.told
        assert event.version == 2
        assert msgspec.json.decode(event.settings, type=ControlConfig) == control

    with_worker(check)


def test_every_hot_section_is_checked_here_or_by_what_a_client_sees() -> None:
    # An experiment is the supervisor's, who tells the workers what it is: see tests/e2e. So are
    # adapters, idle models, bills and what is made of telemetry: workers hear what comes of them.
    supervisors = {"adapters", "billing", "bottleneck", "experiment", "idle", "lora", "telemetry"}
    assert HOT.keys() == CHANGED.keys() | supervisors | {"aliases", "ledger", "server"}


def test_names_keys_and_origins_change_from_one_request_to_the_next() -> None:
    async def check(running: Running) -> None:
        origin = "Origin: https://a.example"
        assert await running.chat(model="other") == 404
        assert await running.chat(origin) == 403
        server = ServerConfig(cors_origins=("https://a.example",), body_bytes_max=1024)
        await running.configure(
            config(server=server, aliases={"other": "toy"}, key_hashes={DIGEST: "t"}), 2
        )
        key = "Authorization: Bearer a-key"
        assert await running.chat() == 401
        assert await running.chat(key, model="other") == 502, "the engine is asked"
        _, answer = await running.ask("/v1/models", key, origin)
        assert b'"other"' in answer
        assert b"access-control-allow-origin: https://a.example" in answer
        assert (await running.ask("/v1/embeddings", key, body=b"x" * 2000))[0] == 413
        await running.configure(config(), 3)
        assert await running.chat() == 502
        assert await running.chat(key, model="other") == 404

    with_worker(check)


@pytest.mark.parametrize(
    ("limits", "sent", "status"),
    [
        pytest.param(
            {"headers_max": 1}, b"GET /healthz HTTP/1.1\r\nA: 1\r\nB: 2\r\n\r\n", 431, id="headers"
        ),
        pytest.param(
            {"header_bytes_max": 1024},
            b"GET /healthz HTTP/1.1\r\nA: %b\r\n" % (b"x" * 2000),
            431,
            id="bytes of a head",
        ),
        pytest.param(
            {"body_bytes_max": 1024},
            b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n",
            413,
            id="bytes of a body",
        ),
        pytest.param(
            {"buffer_bytes_max": 1024, "body_bytes_max": 1024, "connections_max": 5},
            b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n12345678",
            408,
            id="the time of a body",
        ),
        pytest.param({}, b"GET /healthz", 408, id="the time of a head"),
        pytest.param(
            {}, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, id="the time between two"
        ),
        pytest.param(
            {"allowed_hosts": ("mine.example",)},
            b"GET /v1/models HTTP/1.1\r\nHost: mine.example\r\n\r\n",
            200,
            id="names",
        ),
        pytest.param(
            {}, b"GET /v1/models HTTP/1.1\r\nHost: mine.example\r\n\r\n", 421, id="no names"
        ),
    ],
)
def test_limits_of_the_server_hold_at_once(
    limits: dict[str, Any], sent: bytes, status: int
) -> None:
    # Every time-out is short: whatever is sent, the connection is closed in the end.
    times: dict[str, Any] = {
        f"{name}_timeout_s": 0.05 for name in ("header", "body", "idle", "write")
    }

    async def check(running: Running) -> None:
        await running.configure(config(server=ServerConfig(**times, **limits)), 2)
        assert int((await running.send(sent)).split()[1]) == status

    with_worker(check)


def test_the_time_to_drain_changes() -> None:
    async def check(running: Running) -> None:
        await running.configure(config(server=ServerConfig(drain_timeout_s=0.1)), 2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            moved = Upstream(name="a", url=url)
            await running.configure(
                config(server=ServerConfig(drain_timeout_s=0.1), upstreams=(moved,)), 3
            )
            asking = asyncio.create_task(running.chat())
            while not running.worker._driver.exchanges:  # noqa: ASYNC110 -- it is another task's
                await asyncio.sleep(0.005)
            running.channel.send(Drain())
            with contextlib.suppress(IndexError, ConnectionError):  # it is cut without an answer
                await asking
        assert not running.worker._driver.exchanges

    with_worker(check, drain_timeout_s=60.0)


def test_what_a_broken_ledger_means_changes() -> None:
    async def check(running: Running) -> None:
        assert await running.chat() == 502, "it goes on without a record"
        await running.configure(config(on_ledger_failure="closed"), 2)
        assert await running.chat() == 503

    with_worker(check)


def test_a_controller_that_fails_leaves_all_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    async def check(running: Running) -> None:
        running.controller.breaks = True
        report = await running.configure(config(aliases={"other": "toy"}), 2)
        assert report.config_version == 1
        assert await running.chat(model="other") == 404
        running.controller.breaks = False
        report = await running.configure(config(aliases={"other": "toy"}), 3)
        assert report.config_version == 3
        assert await running.chat(model="other") == 502

    with caplog.at_level(logging.ERROR):
        with_worker(check)
    assert "configuration 2 could not be applied" in caplog.text


def test_another_target_is_used_for_what_comes_next() -> None:
    async def check(running: Running) -> None:
        driver = running.worker._driver
        first = driver.targets["a"]
        moved = Upstream(name="a", url="http://127.0.0.1:2")
        b = Upstream(name="b", url="http://127.0.0.1:3")
        control = ControlConfig(replicas=("a", "b"))
        report = await running.configure(config(upstreams=(UP, b), control=control), 2)
        assert driver.targets["a"] is first
        assert {r.name for r in report.replicas} == {"a", "b"}
        report = await running.configure(
            config(upstreams=(moved,), control=ControlConfig(replicas=("a",))), 3
        )
        assert {r.name for r in report.replicas} == {"a"}
        assert list(driver.targets) == ["a"]
        assert driver.targets["a"] is not first
        assert first.pool.ended
        (family,) = [f for f in report.families if f.name == "mileage_replica_in_flight"]
        assert {labels[0] for labels in family.numbers} == {"a"}

    with_worker(check)


def test_what_waits_for_a_model_that_is_no_more_its_tenants_is_refused() -> None:
    def adapters(**tenants: str | None) -> GatewayConfig:
        made = [
            AdapterConfig(name=n, path=f"/{n}", base="toy", tenant=t) for n, t in tenants.items()
        ]
        return config(adapters=tuple(made), private_models={"toy": ("another",)})

    async def check(running: Running) -> None:
        open_to_all = adapters(given=None, removed=None, stays=None)
        await running.configure(msgspec.structs.replace(open_to_all, private_models={}), 2)
        running.channel.send(Deliver((ReplicaUp("a", ()), Loadable("a", ("toy", *NAMES)))))
        asked = {name: asyncio.create_task(running.chat(model=name)) for name in ("toy", *NAMES)}
        controller = running.controller
        while len(controller.loads.waiting()) < len(asked):  # noqa: ASYNC110 -- nothing tells it
            await asyncio.sleep(0.01)
        await running.configure(adapters(given="another", stays=None), 3)
        gone = [await asked[name] for name in ("toy", "given", "removed")]
        assert gone == [404, 404, 404]
        assert controller.loads.waiting() == {"stays": 1}
        running.channel.send(Deliver((ReplicaUp("a", ("stays",)),)))
        assert await asked["stays"] == 502, "it was sent, and there is nobody"

    with_worker(check)


def test_a_mark_is_answered_when_what_was_told_before_is_taken_in() -> None:
    async def check(running: Running) -> None:
        running.channel.send(Deliver((ReplicaUp("a", ("other",)),)))
        running.channel.send(Mark(7))
        while not isinstance(message := await running.channel.receive(), Marked):
            assert message is not None
        assert message.number == 7
        assert running.worker._driver.served_models() == ["other"]

    with_worker(check)
