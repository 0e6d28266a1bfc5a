"""VllmLoader: vLLM's sleep mode: its weights leave the GPU, its process and compilation stay.

The endpoints are those of a server started with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from mileage.core.errors import EngineError
from mileage.core.model_loader import ModelLook
from mileage.engines.remote import RemoteEngine
from mileage.wire.fetch import FetchResponse, fetch

__all__ = ["VllmLoader"]

_ASK_S = 10.0
_SLEEP_S = 120.0
_WAKE_S = 600.0
_RELOAD = b'{"method": "reload_weights"}'
_HINT = "it needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"


class _Sleeping(msgspec.Struct):
    is_sleeping: bool


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class VllmLoader:
    """Puts one vLLM server to sleep and wakes it.

    Level 1 keeps the weights in the host's memory; level 2 drops them, and reads them again from
    the disk. Requests are never aborted: `mode=keep` freezes what runs, and nothing does.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        level: Literal[1, 2],
        *,
        send: Callable[..., Awaitable[FetchResponse]] = fetch,
    ) -> None:
        self._engine, self._level, self._send = engine, level, send

    async def look(self) -> ModelLook:
        """By /is_sleeping, and the models by /v1/models, which it tells in its sleep, too."""
        try:
            sleeping = msgspec.json.decode(await self._ask("GET", "/is_sleeping"), type=_Sleeping)
            models = self._engine.models
            if not models:
                listed = msgspec.json.decode(await self._ask("GET", "/v1/models"), type=_Models)
                models = tuple(model.id for model in listed.data)
        except msgspec.DecodeError as error:
            raise EngineError(self._engine.name, f"is no vLLM with sleep mode: {error}") from None
        return ModelLook(not sleeping.is_sleeping, models)

    async def load(self) -> None:
        """Wake it. Raises EngineError where it is still asleep after that."""
        if (await self.look()).loaded:
            return
        if self._level == 1:
            await self._ask("POST", "/wake_up", timeout_s=_WAKE_S)
        else:
            await self._ask("POST", "/wake_up?tags=weights", timeout_s=_WAKE_S)
            await self._ask("POST", "/collective_rpc", body=_RELOAD, timeout_s=_WAKE_S)
            await self._ask("POST", "/wake_up?tags=kv_cache", timeout_s=_WAKE_S)
        if not (await self.look()).loaded:
            raise EngineError(self._engine.name, "says that it still sleeps after it was woken")

    async def unload(self) -> None:
        """Put it to sleep. Raises EngineError where it is still awake after that."""
        path = f"/sleep?level={self._level}&mode=keep"
        await self._ask("POST", path, timeout_s=_SLEEP_S)
        if (await self.look()).loaded:
            raise EngineError(self._engine.name, f"is awake after it was put to sleep: {_HINT}")

    def memory_bytes(self) -> int | None:
        """Its GPU is its own."""
        return None

    def needs_bytes(self) -> int | None:
        """Its GPU is its own."""
        return None

    async def _ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        body: bytes = b"",
        timeout_s: float = _ASK_S,
    ) -> bytes:
        engine = self._engine
        headers = [] if engine.authorization is None else [("authorization", engine.authorization)]
        if body:
            headers.append(("content-type", "application/json"))
        url = f"{engine.url}{path}"
        answer = await self._send(
            url, method=method, headers=headers, body=body, timeout_s=timeout_s
        )
        if answer.status in (404, 405):
            raise EngineError(engine.name, f"has no {path.partition('?')[0]}: {_HINT}")
        if answer.status >= 300:
            said = answer.body[:200].decode("utf-8", "replace")
            raise EngineError(engine.name, f"answered {answer.status} to {path}: {said}")
        return answer.body
