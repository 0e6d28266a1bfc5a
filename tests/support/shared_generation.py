"""Requests that share generations, without sockets: clients, an engine and a controller to script.

world = World()
first, second = world.ask(), world.ask()     # the same request twice
world.engine.head().send(TOKEN)
assert first.got == second.got == TOKEN
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from mileage.control.controller import Controller
from mileage.core.actions import Action, Dispatch, Hold, Join, Reject
from mileage.core.events import Arrived, Cancelled, Event, Failed, Finished, Woke
from mileage.core.request import Endpoint, Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway.bodies import parse_body
from mileage.gateway.call import Call
from mileage.gateway.config import Upstream
from mileage.gateway.driver import Driver
from mileage.gateway.exchange import Exchange
from mileage.gateway.merge_keys import merge_keys
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.target import Target
from mileage.policy.merging import MergeIndex, MergingConfig
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection

__all__ = ["DONE", "JSON", "SSE", "Answering", "Client", "World", "in_loop", "token"]

SSE = [(b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")]
JSON = [(b"content-type", b"application/json"), (b"content-length", b"1")]
DONE = b"data: [DONE]\n\n"


def token(text: str = "x") -> bytes:
    """A stream's event with one token."""
    delta = {"choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: %b\n\n" % msgspec.json.encode(delta)


def in_loop(story: Callable[[], None]) -> None:
    """Run a story inside of an event loop."""

    async def run() -> None:
        story()

    asyncio.run(run())


class Client:
    """One client's connection: what it was sent, and whether it keeps up."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self.status: int | None = None
        self.head = b""
        self.got = b""
        self.slow = False
        self.ended = self.aborted = self.released = False

    @property
    def id(self) -> int:
        """Of its request."""
        assert self.exchange is not None
        return self.exchange.request.id

    @property
    def json(self) -> Any:
        """Its whole answer, decoded."""
        assert self.ended
        return msgspec.json.decode(self.got)

    def leave(self) -> None:
        """Close the connection."""
        assert self.exchange is not None
        self.exchange.client_gone()

    def catch_up(self) -> None:
        """Read all that there is."""
        assert self.exchange is not None
        self.slow = False
        self.exchange.client_ready()

    # --- what an exchange does with a connection ------------------------------------------------

    def start(self, status: int, head: bytes) -> None:
        assert self.status is None
        self.status, self.head = status, head

    def write(self, data: bytes) -> None:
        assert self.status is not None
        assert not self.ended
        self.got += data

    def end(self, data: bytes = b"") -> None:
        self.write(data)
        self.ended = True

    def respond(self, status: int, head: bytes, body: bytes) -> None:
        assert not self.got
        self.status, self.head, self.got, self.ended = status, head, body, True

    def abort(self) -> None:
        self.aborted = True

    def release_body(self) -> None:
        self.released = True


class Answering:
    """One call that the engine got, and its answer; the carrier of both."""

    def __init__(self, request: bytes, sink: Any) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        self.path = head.split(b" ", 2)[1].decode()
        self.fields: dict[str, Any] = msgspec.json.decode(body)
        self.paused = self.aborted = self.ended = False
        self._sink = sink

    def head(
        self, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None
    ) -> Answering:
        """Send the answer's head, by default of a stream."""
        self._sink.head_received(status, SSE if headers is None else headers)
        return self

    def send(self, *parts: bytes, now_s: float = 1.0) -> Answering:
        """Send parts of the answer."""
        for part in parts:
            self._sink.body_received(part, now_s)
        return self

    def end(self, data: bytes = b"", now_s: float = 1.0) -> None:
        """Send the last part."""
        self.ended = True
        self._sink.answer_ended(data, now_s)

    def answer(self, fields: Any, status: int = 200) -> None:
        """Answer whole."""
        self.head(status, JSON)
        self.end(fields if isinstance(fields, bytes) else msgspec.json.encode(fields))

    def fail(self, kind: str = "broken") -> None:
        """Break off."""
        self.ended = True
        self._sink.answer_broken(kind, "as the test said")

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def release(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted = True


class _Pool:
    """Takes what is sent to the engine."""

    def __init__(self) -> None:
        self.calls: list[Answering] = []

    def send(self, request: bytes, sink: Any, now_s: float) -> None:
        call = Answering(request, sink)
        sink.upstream = call
        self.calls.append(call)


class _Log:
    """A request log that keeps the records; `works` False: it cannot be written."""

    def __init__(self) -> None:
        self.intents: list[int] = []
        self.ends: list[RequestTimeline] = []
        self.works = True

    def encode_intent(self, request: Request, arrived_at_utc_ns: int, /) -> bytes:
        self.intents.append(request.id)
        return b"intent"

    def encode_finish(self, timeline: RequestTimeline, /) -> bytes:
        self.ends.append(timeline)
        return b"end"

    def write(self, records: Sequence[bytes]) -> bool:
        return self.works

    def close(self) -> None: ...


class _Intake:
    """Knows of no costs."""

    def rates(self, tenant: str, now_s: float) -> None:
        return None

    def take_spend(self, request_id: int) -> None:
        return None


class _Loads:
    """Knows which models are loaded when asked: `names`."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def loads(self, replica: str, model: str) -> bool:
        return model in self.names


class _Controller:
    """Lets the same requests share, and those with one batch key go together; one replica.

    `holding`: what arrives is held, until `Woke` sends it all; `holds_again`: what failed.
    """

    experiment = None

    def __init__(self) -> None:
        self.intake = _Intake()
        self.loads = _Loads()
        self.holding = False
        self.heard: list[Event] = []
        self.retries = 0
        self.holds_again = False
        self.merges = MergeIndex(MergingConfig())
        self._held: dict[int, Request] = {}

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        self.heard.append(event)
        if isinstance(event, Arrived):
            return self._arrived(event.request)
        if isinstance(event, Woke):
            held, self._held = self._held, {}
            return [Dispatch(request_id, "a") for request_id in held]
        if isinstance(event, Failed) and event.retryable:
            if self.holds_again:
                return [Hold(event.request_id)]
            self.retries -= 1
            if self.retries >= 0:
                return [Dispatch(event.request_id, "a")]
            self.merges.ended(event.request_id)
            return [Reject(event.request_id, "upstream_failed")]
        if isinstance(event, Cancelled):
            self.merges.leave(event.request_id)
        elif isinstance(event, Finished | Failed):
            self.merges.ended(event.request_id)
        return []

    def _arrived(self, request: Request) -> Sequence[Action]:
        leader_id = self.merges.find(request)
        if leader_id is not None:
            self.merges.join(request.id, leader_id)
            return [Join(request.id, leader_id, "same")]
        for held in self._held.values():
            if held.batch_key is not None and held.batch_key == request.batch_key:
                self.merges.join(request.id, held.id)
                return [Join(request.id, held.id, "batch")]
        self.merges.lead(request)
        if self.holding:
            self._held[request.id] = request
            return [Hold(request.id)]
        return [Dispatch(request.id, "a")]

    def reject(self, request_id: int) -> Sequence[Action]:
        self._held.pop(request_id)
        self.merges.ended(request_id)
        return [Reject(request_id, "queue_full")]


class World:
    """Clients before a driver, and an engine behind it. To be made inside of an event loop."""

    def __init__(self, *, closed: bool = False, **merging: Any) -> None:
        self.controller, self.log, self._pool = _Controller(), _Log(), _Pool()
        self.metrics = GatewayMetrics()
        target = Target(Upstream(name="a", url="http://127.0.0.1:1"))
        target.pool = cast("Any", self._pool)
        self.driver = Driver(
            cast("Controller", self.controller),
            [target],
            self.log,
            self.metrics,
            on_ledger_failure="closed" if closed else "open",
            merging=MergingConfig(**merging),
        )
        self.tenant = "t"
        """Of the requests that are asked from now on."""
        self._next_id = 1

    @property
    def calls(self) -> list[Answering]:
        """What the engine was asked."""
        return self._pool.calls

    @property
    def engine(self) -> Answering:
        """The only call that the engine got."""
        (call,) = self._pool.calls
        return call

    def ask(self, endpoint: Endpoint = "chat", **fields: Any) -> Client:
        """Send a request: by default always the same stream."""
        if endpoint == "chat":
            messages = [{"role": "user", "content": "hello"}]
            fields = {"messages": messages, "stream": True, "temperature": 0, **fields}
        return self.join(msgspec.json.encode({"model": "m", **fields}), endpoint)

    def join(self, raw: bytes, endpoint: Endpoint = "chat") -> Client:
        """Send a request with this body."""
        http = HttpRequest()
        http.body = raw
        body = parse_body(endpoint, raw)
        keys = merge_keys(endpoint, raw, body, self.driver.merging, body.model)
        request = Request(
            id=self._next_id,
            tenant=self.tenant,
            model=body.model,
            endpoint=endpoint,
            stream=body.stream,
            arrived_s=0.5,
            prompt_tokens_estimate=1,
            merge_key=keys.merge,
            batch_key=keys.batch,
            batch_items=keys.batch_items,
        )
        self._next_id += 1
        client = Client()
        call = Call(
            http,
            body,
            request,
            headers=b"",
            credentials=b"",
            answer_head=b"x-request-id: req-%x\r\n" % request.id,
            arrived_at_utc_ns=0,
            trace_id=None,
        )
        exchange = Exchange(self.driver, cast("ServerConnection", client), call)
        client.exchange = exchange
        self.driver.arrived(exchange)
        self.flush()
        return client

    def wake(self) -> None:
        """Send all that is held."""
        self.driver.handle(Woke(), 0.6)
        self.flush()

    def flush(self) -> None:
        """End this turn of the loop: records are written, and what waits for them goes out."""
        self.driver.flush()
        self.driver.flush()  # of what the first one led to

    def record(self, client: Client) -> RequestTimeline:
        """How the client's request ended."""
        self.flush()
        (end,) = [end for end in self.log.ends if end.id == client.id]
        return end

    def told(self, kind: type[Event]) -> list[Any]:
        """The events of this type that the controller heard."""
        return [event for event in self.controller.heard if isinstance(event, kind)]
