"""Worker in this process: what it tells its supervisor, and how it leaves its request log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

import pytest

from mileage.core.events import ReplicaUp
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway import worker as module
from mileage.gateway.channel import Channel
from mileage.gateway.config import GatewayConfig, ServerConfig, Upstream
from mileage.gateway.messages import Deliver, Drain, FromWorker, Ready, Report, ToWorker
from mileage.gateway.worker import Worker


class MemoryLog:
    """A request log that keeps what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def encode_intent(self, request: Request, arrived_at_utc_ns: int, /) -> bytes:
        return b"intent"

    def encode_finish(self, timeline: RequestTimeline, /) -> bytes:
        return timeline.outcome.encode()

    def write(self, records: Sequence[bytes]) -> bool:
        self.done += [record.decode() for record in records]
        return True

    def close(self) -> None:
        self.done.append("close")


class Running:
    """A worker and the supervisor's end of its channel."""

    def __init__(self, worker: Worker, channel: Channel[FromWorker], port: int) -> None:
        self.worker, self.channel, self.port = worker, channel, port

    async def report(self, is_it: Callable[[Report], bool] = lambda report: True) -> Report:
        """The next report that is as wanted; AssertionError at the channel's end."""
        while (message := await self.channel.receive()) is not None:
            if isinstance(message, Report) and is_it(message):
                return message
        raise AssertionError("the worker has ended")


def with_worker(
    check: Callable[[Running], Awaitable[None]], *, engine: str = "http://127.0.0.1:1"
) -> list[str]:
    """Run the check beside a worker, then drain it; what was done to its request log."""
    log = MemoryLog()

    async def main() -> None:
        ours, theirs = socket.socketpair()
        channel: Channel[FromWorker] = await Channel.open(ours, FromWorker)
        worker = Worker(
            GatewayConfig(
                server=ServerConfig(drain_timeout_s=0.2),
                upstreams=(Upstream(name="a", url=engine),),
            ),
            index=0,
            seed=1,
            request_log=log,
            channel=await Channel.open(theirs, ToWorker),
        )
        with socket.create_server(("127.0.0.1", 0)) as sock:
            sock.setblocking(False)
            running = asyncio.create_task(worker.run(sock))
            try:
                async with asyncio.timeout(20):
                    assert isinstance(await channel.receive(), Ready)
                    await check(Running(worker, channel, sock.getsockname()[1]))
                    channel.send(Drain())
                    await running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await channel.finish(1.0)

    asyncio.run(main())
    return log.done


def test_its_request_log_is_closed_after_its_last_record() -> None:
    async def check(running: Running) -> None:
        await running.report()

    assert with_worker(check) == ["close"]


def test_a_report_that_fails_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_REPORT_S", 0.02)
    snapshot, failed = Worker._snapshot, [0]

    def fail_twice(worker: Worker) -> Report:
        failed[0] += 1
        if failed[0] <= 2:
            raise RuntimeError("no state")
        return snapshot(worker)

    monkeypatch.setattr(Worker, "_snapshot", fail_twice)

    async def check(running: Running) -> None:
        await running.report()

    with caplog.at_level(logging.ERROR):
        with_worker(check)
    assert caplog.text.count("RuntimeError: no state") == 2


def test_a_channel_that_breaks_drains_it() -> None:
    async def check(running: Running) -> None:
        running.channel.close()

    assert with_worker(check) == ["close"]


def test_a_request_that_the_drain_cuts_is_on_record_before_the_log_is_closed() -> None:
    async def check(running: Running) -> None:
        running.channel.send(Deliver((ReplicaUp("a", models=("toy",)),)))
        await running.report(lambda report: report.replicas[0].state == "up")
        client = stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
        body = b'{"model": "toy", "messages": [{"role": "user", "content": "hello"}]}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        client.sendall(head + body)
        await running.report(lambda report: report.in_flight == 1)

    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        done = with_worker(check, engine=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert done[0] == "intent"
    assert done[-1] == "close"
    assert len(done) == 3
