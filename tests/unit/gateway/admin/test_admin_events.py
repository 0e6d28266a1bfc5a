"""Live updates: everyone gets the newest document, a slow one misses some, places are bounded."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from starlette.types import Message, Receive

from mileage.gateway.admin.events import EventStream, Hub
from tests.support.admin_plane import AdminPlane
from tests.support.asgi import scope_of


class Client:
    """One subscriber: `sent` is what it got; it takes no more while `taking` is not set."""

    def __init__(self, stream: EventStream, method: str = "GET") -> None:
        self.sent: list[Message] = []
        self.taking = asyncio.Event()
        self.taking.set()
        self._leaving = asyncio.Event()
        self.task = asyncio.ensure_future(
            stream(scope_of(method, "/api/v1/events", {}), self._receive(), self._send)
        )

    def leave(self) -> None:
        self._leaving.set()

    def events(self) -> list[bytes]:
        body = b"".join(message.get("body", b"") for message in self.sent[1:])
        return [each for each in body.split(b"\n\n") if each.startswith(b"id:")]

    def _receive(self) -> Receive:
        first: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if first:
                return first.pop()
            await self._leaving.wait()
            return {"type": "http.disconnect"}

        return receive

    async def _send(self, message: Message) -> None:
        await self.taking.wait()
        self.sent.append(message)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_each_document_is_sent_once_as_an_event() -> None:
    async def run() -> None:
        hub = Hub(2)
        client = Client(EventStream(hub))
        await settle()
        assert client.sent[0]["status"] == 200
        assert (b"content-type", b"text/event-stream; charset=utf-8") in client.sent[0]["headers"]
        assert client.events() == []
        hub.publish(b'{"a":1}')
        await settle()
        hub.publish(b'{"a":2}')
        await settle()
        assert client.events() == [
            b'id: 1\nevent: update\ndata: {"a":1}',
            b'id: 2\nevent: update\ndata: {"a":2}',
        ]
        hub.close()
        await client.task
        assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    asyncio.run(run())


def test_who_comes_later_gets_the_newest_at_once() -> None:
    async def run() -> None:
        hub = Hub(2)
        for number in range(5):
            hub.publish(b"%d" % number)
        client = Client(EventStream(hub))
        await settle()
        assert client.events() == [b"id: 5\nevent: update\ndata: 4"]
        client.leave()
        await client.task

    asyncio.run(run())


def test_a_slow_client_misses_documents_and_holds_up_nobody() -> None:
    async def run() -> None:
        hub = Hub(2)
        slow, fast = Client(EventStream(hub)), Client(EventStream(hub))
        await settle()
        hub.publish(b"1")
        await settle()
        slow.taking.clear()
        for number in range(2, 100):
            hub.publish(b"%d" % number)
            await settle()
        assert len(fast.events()) == 99
        slow.taking.set()
        await settle()
        # One was on its way when the client stopped taking; of the others only the last is left.
        assert [event.rpartition(b" ")[2] for event in slow.events()] == [b"1", b"2", b"99"]
        hub.close()
        await asyncio.gather(slow.task, fast.task)

    asyncio.run(run())


def test_a_client_that_leaves_gives_its_place_back() -> None:
    async def run() -> None:
        hub = Hub(1)
        client = Client(EventStream(hub))
        await settle()
        assert hub.subscribers == 1
        refused = Client(EventStream(hub))
        await refused.task
        assert refused.sent[0]["status"] == 503
        body = msgspec.json.decode(refused.sent[1]["body"])
        assert body["error"]["code"] == "too_many_subscribers"
        assert hub.subscribers == 1
        client.leave()
        await client.task
        assert hub.subscribers == 0

    asyncio.run(run())


def test_a_client_that_leaves_while_it_takes_nothing_is_not_waited_for() -> None:
    async def run() -> None:
        hub = Hub(1)
        client = Client(EventStream(hub))
        await settle()
        client.taking.clear()
        hub.publish(b"1")
        await settle()
        client.leave()
        await asyncio.wait_for(client.task, 60)
        assert hub.subscribers == 0

    asyncio.run(run())


def test_a_failure_of_the_connection_is_told_and_the_place_comes_back() -> None:
    async def run() -> None:
        hub = Hub(1)

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            await EventStream(hub)(scope_of("GET", "/api/v1/events", {}), receive, send)
        assert hub.subscribers == 0

    asyncio.run(run())


def test_a_head_request_gets_no_endless_answer() -> None:
    async def run() -> None:
        client = Client(EventStream(Hub(1)), "HEAD")
        await asyncio.wait_for(client.task, 60)
        assert client.sent[-1]["more_body"] is False

    asyncio.run(run())


def test_after_the_end_nobody_gets_in() -> None:
    async def run() -> None:
        hub = Hub(1)
        hub.close()
        client = Client(EventStream(hub))
        await client.task
        assert client.sent[0]["status"] == 503

    asyncio.run(run())


def test_every_tick_publishes_the_newest_second_and_the_status() -> None:
    async def run() -> None:
        plane = AdminPlane()
        plane.advance(12)
        client = Client(EventStream(plane.app.hub))
        await settle()
        (event,) = client.events()
        update = msgspec.json.decode(event.partition(b"data: ")[2])
        assert update["sample"]["at_utc_s"] == 1_700_001_012
        assert update["sample"]["values"]["requests_per_s"] > 0
        assert update["status"]["uptime_s"] == 12
        assert len(update["status"]["replicas"]) == 3
        client.leave()
        await client.task

    asyncio.run(run())


def test_a_tick_that_fails_does_not_end_the_ticking(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> int:
        plane, ticks = AdminPlane(), 0

        def tick() -> None:
            nonlocal ticks
            ticks += 1
            plane.now_s += 0.9999
            if ticks == 1:
                raise RuntimeError("a bad report")
            if ticks == 3:
                running.cancel()

        monkeypatch.setattr(plane.app, "tick", tick)
        running = asyncio.ensure_future(plane.app.run())
        await asyncio.wait({running}, timeout=60)
        assert running.cancelled()
        return ticks

    assert asyncio.run(run()) == 3
    assert "a bad report" in caplog.text
