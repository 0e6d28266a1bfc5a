"""ControlServer: the side of the control in vLLM's API server: asks and sets all its engines.

Requests that come while one is on its way to the engines are merged into the next: a step may take
seconds, and only the last value is ever in force.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.policy.engine_knobs import (
    ControlDocument,
    ControlRequest,
    RankState,
    merge_knobs,
)
from mileage.vllm_plugin.capability import probe_calls
from mileage.vllm_plugin.control_document import control_document, leader
from mileage.vllm_plugin.engine_control import SetMessage
from mileage.vllm_plugin.general import GET_METHOD, SET_METHOD
from mileage.vllm_plugin.policy_settings import decode_policy

__all__ = ["ControlServer"]

_CALL_MAX_S: Final = 120.0
"""An engine answers between two steps; a step of a long prompt can take a minute on a CPU."""
_TRIES_MAX: Final = 8
_RETRY_MAX_S: Final = 0.05
_POLL_S: Final = 0.02


class ControlServer:
    """All engines of one API server, through vLLM's own client of them."""

    def __init__(self, engine_client: Any, engine_version: str) -> None:
        self._core: Any = getattr(engine_client, "engine_core", None)
        self._why_not = probe_calls(engine_client)
        self._engine_version = engine_version
        self._writer = secrets.token_hex(4)
        self._lock = asyncio.Lock()
        self._asking: asyncio.Task[ControlDocument] | None = None
        self._waiting: list[tuple[ControlRequest, asyncio.Future[ControlDocument]]] = []
        self.known: ControlDocument | None = None
        """The last document."""
        self.known_s = float("-inf")

    async def document(self) -> ControlDocument:
        """What the engines say now; those who ask at the same time share one answer.

        Raises EngineError.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    def queue_limit(self, now_s: float) -> tuple[int | None, int]:
        """`waiting_max` in force (None: no limit), and how many requests all engines run at once.

        `now_s` is monotonic time: after the lease there is no limit.
        """
        known = self.known
        if known is None:
            return None, 1
        if known.capabilities.get("waiting_max") is not True:
            return None, 1  # how many it runs is not known, or its control has failed
        active = known.applied.active_max
        if active is None:
            # This vLLM has no cap that could be lowered: all its slots may run.
            active = known.bounds["active_max"][1]
        running = len(known.ranks) * active
        waiting_max = known.requested.waiting_max
        if waiting_max is None or self._lease_is_over(known, now_s):
            return None, running
        low, high = known.bounds["waiting_max"]
        return min(max(waiting_max, low), high), running

    async def change(self, request: ControlRequest) -> ControlDocument:
        """Ask all engines for it; the document tells what they have taken.

        Raises ConfigError for a policy that they cannot run, and EngineError.
        """
        if request.policy is not msgspec.UNSET:
            _check_policy(request.policy)
        done: asyncio.Future[ControlDocument] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, done))
        try:
            async with self._lock:
                while not done.done():
                    await self._change_next()
        except BaseException:
            # Whoever asked is gone: the next one's request is not to bring this one along.
            self._waiting = [each for each in self._waiting if each[1] is not done]
            raise
        found = await done
        until_s = time.monotonic() + request.wait_s
        version = found.version
        while found.applied_version < version and time.monotonic() < until_s:
            await asyncio.sleep(_POLL_S)
            found = await self.document()
        return found

    async def _change_next(self) -> None:
        """Send the requests that wait, as one; one with a policy goes alone: it can be refused."""
        batch = [self._waiting.pop(0)]
        if batch[0][0].policy is msgspec.UNSET:
            while self._waiting and self._waiting[0][0].policy is msgspec.UNSET:
                batch.append(self._waiting.pop(0))
        changes: dict[str, int | None] = {}
        for request, _ in batch:
            changes.update(request.knobs)
        try:
            found = await self._send(changes, batch[-1][0])
        except (ConfigError, EngineError) as error:
            for _, done in batch:
                done.set_exception(error)
            return
        except BaseException as error:
            for _, done in batch:
                done.set_exception(EngineError("vllm", f"the call was given up: {error!r}"))
            raise
        for _, done in batch:
            done.set_result(found)

    async def _send(
        self, changes: Mapping[str, int | None], last: ControlRequest
    ) -> ControlDocument:
        known = self.known
        if known is None or self._lease_is_over(known, time.monotonic()):
            known = await self._ask()
        for tried in range(_TRIES_MAX):
            if tried:
                await asyncio.sleep(secrets.randbelow(1000) / 1000 * _RETRY_MAX_S)
            newest = leader(known.ranks)
            if isinstance(last.policy, dict) and known.failed is not None:
                # Else the other ranks would begin what is refused.
                expected = f"null: the control of one of the engines has failed: {known.failed}"
                raise ConfigError("policy", last.policy, expected)
            message = SetMessage(
                version=newest.version + 1,
                writer=self._writer,
                base=(newest.version, newest.writer),
                knobs=merge_knobs(newest.requested, changes),
                lease_s=last.lease_s,
                policy=last.policy,
            )
            answers = await self._call(SET_METHOD, msgspec.to_builtins(message))
            for answer in answers:
                if answer["refused"] is not None:
                    key, value, expected = answer["refused"]
                    raise ConfigError(key, value, expected)
            known = self._learn([answer["state"] for answer in answers])
            # A rank that had a later request, from another server process, is asked again.
            if all(answer["accepted"] for answer in answers):
                return known
        raise EngineError("vllm", f"others change the engine as well: given up after {_TRIES_MAX}")

    def _lease_is_over(self, known: ControlDocument, now_s: float) -> bool:
        """Whether the engines may have gone back to their start values since they were heard."""
        left_s = known.lease_left_s
        return left_s is not None and now_s - self.known_s >= left_s

    async def _ask(self) -> ControlDocument:
        return self._learn(await self._call(GET_METHOD))

    def _learn(self, states: list[Any]) -> ControlDocument:
        try:
            ranks = [msgspec.convert(state, RankState) for state in states]
        except msgspec.ValidationError as error:
            raise EngineError("vllm", f"another plugin version in an engine: {error}") from None
        self.known = control_document(
            sorted(ranks, key=lambda rank: rank.rank), self._engine_version
        )
        self.known_s = time.monotonic()
        return self.known

    async def _call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every engine."""
        if self._why_not is not None:
            raise EngineError("vllm", self._why_not)
        calls = asyncio.ensure_future(self._call_all(method, *arguments))
        try:
            # vLLM's own future stays: its answer may come later, and must find it.
            return await asyncio.wait_for(asyncio.shield(calls), _CALL_MAX_S)
        except TimeoutError:
            calls.add_done_callback(lambda call: call.cancelled() or call.exception())
            raise EngineError("vllm", f"no answer within {_CALL_MAX_S:g} s") from None
        except Exception as error:
            raise EngineError("vllm", f"{type(error).__name__}: {error}") from error

    async def _call_all(self, method: str, *arguments: Any) -> list[Any]:
        core = self._core
        every = getattr(core, "call_utility_all_async", None)
        if callable(every):
            return list(await every(method, *arguments))
        one, engines = getattr(core, "_call_utility_async", None), getattr(core, "core_engines", ())
        if callable(one) and len(engines) > 1:
            calls = [one(method, *arguments, engine=engine) for engine in engines]
            return list(await asyncio.gather(*calls))
        return [await core.call_utility_async(method, *arguments)]


def _check_policy(document: dict[str, Any] | None) -> None:
    """Refuse here what no engine takes, or what cannot even be sent to one. Raises ConfigError."""
    decode_policy(document)
    try:
        msgspec.msgpack.encode(document)
    except OverflowError:
        raise ConfigError("policy", "a longer number", "numbers of 64 bits") from None
