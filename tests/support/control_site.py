"""A vLLM API server with Mileage's control, without vLLM: engines are called as it calls them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

from mileage.vllm_plugin.control_app import CONTROL_PATH, ControlMiddleware
from mileage.vllm_plugin.general import add_control
from tests.support.asgi import scope_of
from tests.support.scheduler_versions import core_of

__all__ = ["SITE_TOKEN", "ControlSite", "engine", "until"]

SITE_TOKEN = "a-token-of-sixteen-characters"
BEARER = {"authorization": f"Bearer {SITE_TOKEN}"}


async def until(condition: Callable[[], bool]) -> None:
    """Let the others run until it holds."""
    while not condition():  # noqa: ASYNC110 -- what is waited for tells nobody
        await asyncio.sleep(0)


def engine(rank: int = 0, **options: Any) -> Any:
    """One engine core with Mileage's methods, as the general plugin leaves it."""
    core = core_of(**options)

    class EngineCore:
        def __init__(self) -> None:
            self.scheduler, self.vllm_config = core.scheduler, core.vllm_config
            self.engine_index = rank

        def step(self) -> None:
            self.scheduler.update_from_output(self.scheduler.schedule(), None)

    assert add_control(EngineCore) is None
    return EngineCore()


class _Client:
    """vLLM's client of its engines: calls their methods by name; `calls` counts the rounds."""

    def __init__(self, *engines: Any) -> None:
        self.engines = engines
        self.calls: list[str] = []
        self.fault: Exception | None = None
        self.hold: asyncio.Event | None = None
        """No call is answered before it is set."""

    async def call_utility_all_async(self, method: str, *arguments: Any) -> list[Any]:
        self.calls.append(method)
        await asyncio.sleep(0)
        if self.hold is not None:
            await self.hold.wait()
        if self.fault is not None:
            raise self.fault
        # As over a socket: plain values only.
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(arguments))
        return [getattr(each, method)(*plain) for each in self.engines]

    async def call_utility_async(self, method: str, *arguments: Any) -> Any:
        return (await self.call_utility_all_async(method, *arguments))[0]


class ControlSite:
    """A server of these engines, whose inference requests end when they are told to."""

    def __init__(self, *engines: Any, servers: int = 1, older: bool = False) -> None:
        """`servers` are there of its kind; in an `older` vLLM only the command line tells it."""
        self.client = _Client(*(engines or (engine(),)))
        parallel = SimpleNamespace() if older else SimpleNamespace(_api_process_count=servers)
        state = SimpleNamespace(
            engine_client=SimpleNamespace(
                engine_core=self.client, vllm_config=SimpleNamespace(parallel_config=parallel)
            ),
            # vLLM's older way to start takes the option, and starts one all the same.
            args=SimpleNamespace(api_server_count=servers if older else 2),
        )
        self.app = SimpleNamespace(state=state)
        self.middleware = ControlMiddleware(self._serve)
        self.passed: list[str] = []
        self.end = asyncio.Event()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        self.passed.append(scope["path"])
        if scope["type"] == "websocket" or scope["method"] == "POST":
            await self.end.wait()
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def ask(
        self,
        method: str = "GET",
        path: str = CONTROL_PATH,
        document: Any = None,
        headers: Mapping[str, str] = BEARER,
        body: bytes = b"",
    ) -> tuple[int, Any, dict[str, str]]:
        """One request; status, document and headers of the answer."""
        sent = msgspec.json.encode(document) if document is not None else body
        messages: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        scope = scope_of(method, path, headers)
        scope["app"] = self.app
        await self.middleware(scope, receive, send)
        told = {k.decode(): v.decode() for k, v in messages[0]["headers"]}
        return messages[0]["status"], msgspec.json.decode(messages[1]["body"]), told

    async def connect(self, path: str, *, answers: bool = False) -> int:
        """A WebSocket until it is closed; the code with which it is, or the status of the answer
        to its handshake, where the server can give one (`answers`)."""
        messages: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            messages.append(message)

        extensions: dict[str, Any] = {"websocket.http.response": {}} if answers else {}
        scope = {"type": "websocket", "path": path, "headers": [], "app": self.app}
        await self.middleware({**scope, "extensions": extensions}, receive, send)
        kinds = [message["type"] for message in messages]
        if kinds[0] == "websocket.close":
            code: int = messages[0]["code"]
            return code
        assert kinds == ["websocket.http.response.start", "websocket.http.response.body"]
        assert b"retry-after" in dict(messages[0]["headers"])
        status: int = messages[0]["status"]
        return status
