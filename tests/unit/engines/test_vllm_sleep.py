"""vLLM's sleep mode, against a server that answers as vLLM 0.32's development endpoints do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mileage.core.errors import EngineError
from mileage.engines.config import EngineConfig
from mileage.engines.remote import resolve
from mileage.engines.vllm_sleep import VllmLoader
from mileage.wire.fetch import FetchResponse

ENGINE = resolve(EngineConfig(kind="vllm", url="http://127.0.0.1:8000", name="big"), {})


class SleepingServer:
    """What sleeps in it: of level 1 the weights and the KV cache come back with one call; of level
    2 each by its tag, and the weights only after they were read again."""

    def __init__(self, *, dev_mode: bool = True) -> None:
        self.dev_mode = dev_mode
        self.asleep: set[str] = set()
        self.level = 0
        self.calls: list[str] = []

    async def __call__(self, url: str, *, method: str, body: bytes, **others: Any) -> FetchResponse:
        path = url.removeprefix("http://127.0.0.1:8000")
        self.calls.append(f"{method} {path}")
        if path == "/v1/models":
            return self._json(b'{"object": "list", "data": [{"id": "llama-70b"}]}')
        if not self.dev_mode:
            return FetchResponse(404, (), b'{"detail":"Not Found"}')
        name, _, query = path.partition("?")
        if name == "/is_sleeping":
            return self._json(b'{"is_sleeping":%s}' % (b"true" if self.asleep else b"false"))
        if name == "/sleep":
            assert "mode=keep" in query, "the default aborts requests"
            self.asleep = {"weights", "kv_cache"} | ({"content"} if "level=2" in query else set())
        elif name == "/wake_up":
            self.asleep -= {query.removeprefix("tags=")} if query else {"weights", "kv_cache"}
        elif name == "/collective_rpc":
            assert (body, "weights" in self.asleep) == (b'{"method": "reload_weights"}', False)
            self.asleep.discard("content")
        return FetchResponse(200, (), b"")

    def _json(self, body: bytes) -> FetchResponse:
        return FetchResponse(200, (("content-type", "application/json"),), body)


@pytest.mark.parametrize("level", [1, 2])
def test_it_sleeps_and_wakes(level: Any) -> None:
    server = SleepingServer()
    loader = VllmLoader(ENGINE, level, send=server)

    async def play() -> None:
        assert await loader.look() == (True, ("llama-70b",))
        await loader.unload()
        assert f"POST /sleep?level={level}&mode=keep" in server.calls
        assert await loader.look() == (False, ("llama-70b",))
        await loader.load()
        assert await loader.look() == (True, ("llama-70b",))
        server.calls.clear()
        await loader.load()
        assert not any(call.startswith("POST") for call in server.calls)

    asyncio.run(play())


def test_a_server_without_sleep_mode_is_told_of_with_what_it_needs() -> None:
    loader = VllmLoader(ENGINE, 1, send=SleepingServer(dev_mode=False))
    with pytest.raises(EngineError, match="VLLM_SERVER_DEV_MODE=1"):
        asyncio.run(loader.look())


def test_a_server_that_stays_asleep_is_not_taken_for_awake() -> None:
    server = SleepingServer()
    server.asleep = {"weights", "kv_cache", "content"}
    with pytest.raises(EngineError, match="still sleeps"):
        asyncio.run(VllmLoader(ENGINE, 1, send=server).load())


def test_no_other_engine_sleeps() -> None:
    with pytest.raises(Exception, match="only vLLM sleeps"):
        EngineConfig(kind="sglang", url="http://127.0.0.1:1", sleep_level=1)
