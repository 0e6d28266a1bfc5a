"""A scripted engine: OpenAI-like, on a port of its own, that fails just as a test tells it to.

It runs in a thread, so that a test drives it by plain calls while real clients and a real gateway
talk to it:

    with ScriptedEngine(models=("toy",)) as engine:
        engine.behaviour = Behaviour(tokens=3, fault="reset", fault_at=1)
        ...
        engine.until(lambda: engine.aborted == 1, "the generation was given up")
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from tests.support.accepting import close_server
from tests.support.engine_answers import error_answer
from tests.support.engine_connection import Connection
from tests.support.engine_script import Behaviour, Received

__all__ = ["Behaviour", "Received", "ScriptedEngine"]

WAIT_S = 60.0


class ScriptedEngine:
    """The engine. `behaviour` is for every generation, unless `following` has one for the next."""

    def __init__(self, *, models: tuple[str, ...] = ("toy",)) -> None:
        self.models = models
        self.behaviour = Behaviour()
        self.following: deque[Behaviour] = deque()
        self.healthy = True
        self.received: list[Received] = []
        """Generation requests, whether they were answered or not."""
        self.started = self.finished = self.aborted = self.failed = 0
        """Generations: begun; ended in order; given up as the client went away; broken by us."""
        self.connections_made = 0
        self.bytes_streamed = 0
        """Of streams' events, handed to the socket."""
        self.mistakes: list[str] = []
        """What clients did wrong."""
        self._changed = threading.Condition()
        self.connections: set[Connection] = set()
        self._released = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    # --- what tests call ----------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> int:
        """Generations under way."""
        return self.started - self.finished - self.aborted - self.failed

    def reset(self) -> None:
        """Forget what happened and was told; listen, be well, end what still runs."""
        self.behaviour = Behaviour()
        self.following.clear()
        self.healthy = True
        self.release()
        self._call(self._drop_connections)
        self.listen()
        self.until(lambda: not self.running, "the generations ended")
        self.received.clear()
        self.started = self.finished = self.aborted = self.failed = self.bytes_streamed = 0
        self._call(self._released.clear)

    def release(self) -> None:
        """Let generations that wait at `hold_at` go on; those that come later do not wait."""
        self._call(self._released.set)

    def listen(self) -> None:
        """Accept connections, always at the same port."""

        async def listen() -> None:
            if self._server is None:
                self._server = await self._loop.create_server(
                    lambda: Connection(self), "127.0.0.1", self.port
                )
                self.port = self._server.sockets[0].getsockname()[1]

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(WAIT_S)

    def die(self) -> None:
        """As if killed: all connections are reset, new ones are refused."""

        async def die() -> None:
            server, self._server = self._server, None
            if server is not None:
                await close_server(server)
            self._drop_connections()

        asyncio.run_coroutine_threadsafe(die(), self._loop).result(WAIT_S)

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
        """Wait for something that a request or a connection's end makes true; else fail."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise AssertionError(f"not within {timeout_s:g} s: {what}; {self}")

    def __str__(self) -> str:
        return (
            f"engine {self.url} {'/'.join(self.models)}: started {self.started}, "
            f"finished {self.finished}, aborted {self.aborted}, failed {self.failed}, "
            f"received {len(self.received)}"
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self.die()

        async def rest() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(rest(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        if error is None:
            assert not self.mistakes, self.mistakes

    # --- inside -------------------------------------------------------------------------------

    def _call(self, function: Callable[[], object]) -> None:
        """Run a function in the engine's loop, and wait for it."""

        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(WAIT_S)

    def _drop_connections(self) -> None:
        for connection in tuple(self.connections):
            connection.reset()

    def note(self) -> None:
        """Wake those who wait in `until`."""
        with self._changed:
            self._changed.notify_all()

    def page(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body of what is not a generation."""
        if path == "/health":
            return (200 if self.healthy else 503), "text/plain", b""
        if path == "/v1/models":
            entries = [{"id": model, "object": "model"} for model in self.models]
            return 200, "application/json", msgspec.json.encode({"data": entries})
        if path == "/metrics":
            text = f'vllm:num_requests_running{{engine="0"}} {self.running}\n'
            return 200, "text/plain", text.encode()
        if path == "/version":
            return 200, "application/json", b'{"version":"0.32.0"}'
        return 404, "application/json", error_answer(404, f"nothing at {path}")

    async def wait_released(self) -> None:
        """Return when `release` was called."""
        await self._released.wait()
