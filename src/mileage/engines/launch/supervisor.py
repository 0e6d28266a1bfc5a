"""Runs an engine until it is told to end: started, made ready, watched, started again."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Callable
from typing import Any, Final

from mileage.core.errors import EngineError
from mileage.doctor.collect.start_failure import FailureCause
from mileage.engines.launch.engine_process import EngineProcess
from mileage.engines.launch.events import (
    Ended,
    LaunchEvent,
    Preload,
    Ready,
    Restarting,
    Started,
    Stopping,
    Up,
    Warmed,
)
from mileage.engines.launch.keeper_params import KeeperParams
from mileage.engines.launch.launch_command import LaunchCommand
from mileage.engines.launch.log_stream import LogStream
from mileage.engines.launch.mps_hold import MpsHold
from mileage.engines.launch.preloading import PreloadSlot
from mileage.engines.launch.settings import LaunchSettings
from mileage.engines.launch.start_history import StartHistory, StartRecord
from mileage.engines.launch.start_watch import StartWatch
from mileage.engines.launch.token_client import KeyRefusedError, TokenClient
from mileage.engines.launch.verdict import NEVER_READY, Verdict, judge
from mileage.engines.launch.warm_up import WarmTook, default_shapes, warm_up

__all__ = ["NEVER_READY", "Supervisor"]

_POLL_S: Final = 0.1
_RETRY_S: Final = 0.5
_UNREADY_DRAIN_S: Final = 5.0
_TAIL_LINES: Final = 10
_CAUSE_LINES: Final = 200
_OUTPUT: Final = {"PYTHONUNBUFFERED": "1"}
"""Else an engine's Python holds its lines back, and phases come late."""


class Supervisor:
    """`run` it once; `stop` ends it in order. What happens is told to `tell`."""

    def __init__(
        self,
        command: LaunchCommand,
        settings: LaunchSettings,
        *,
        make_log: Callable[[Callable[[str], None]], LogStream],
        tell: Callable[[LaunchEvent], None],
        history: StartHistory | None = None,
    ) -> None:
        self._command, self._settings = command, settings
        self._log = make_log(self._take_line)
        self._tell, self._history = tell, history
        self._mps = None if settings.mps is None else MpsHold(settings.mps)
        self._reader: PreloadSlot | None = None
        if settings.preload is not None:
            reserve = settings.preload_reserve_bytes
            self._reader = PreloadSlot(settings.preload, reserve_bytes=reserve)
        self._stopping, self._hurry = asyncio.Event(), asyncio.Event()
        self._watch: StartWatch | None = None
        self._started_s = 0.0
        self._attempt = 0
        self._served = False
        self._state = "starting"
        self._why = ""
        self._model: str | None = None
        self._warm: tuple[WarmTook, ...] = ()

    def stop(self) -> None:
        """Let the engine drain and end; `run` returns then. A second time: end it at once."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def state(self) -> tuple[bool, dict[str, Any]]:
        """Whether it is ready, and what is known of its start."""
        watch = self._watch
        return self._state == "ready", {
            "ready": self._state == "ready",
            "state": self._state,
            "at": watch.phase() if watch is not None and self._state == "starting" else None,
            "attempt": self._attempt,
            "url": self._command.url,
            "model": self._model,
            "engine": self._command.kind,
            "engine_version": watch.version() if watch is not None else None,
            "phases": watch.times() if watch is not None else None,
            "warm": self._warm,
        }

    async def run(self) -> int:
        """The engine's exit code, or -N where signal N ended it; 0 where it was to end and did,
        not where it ended so by itself (but a `command` that was ready may).

        Raises EngineError where it cannot be started at all: its port is taken, MPS is missing. If
        only a later start fails so, it is tried again as after any failure.
        """
        self._command.check_port()
        try:
            return await self._run()
        finally:
            if self._mps is not None:
                await asyncio.to_thread(self._mps.close)

    async def _run(self) -> int:
        failures = 0
        while True:
            self._attempt += 1
            ended, ready_for_s = await self._once()
            if self._stopping.is_set() or ended.meant:
                self._state = "stopped"
                return ended.exit_code
            self._state = "failed"
            stable = ended.ready and ready_for_s >= self._settings.stable_s
            failures = 1 if stable else failures + 1
            if ended.permanent or failures > self._settings.restarts:
                return ended.exit_code
            await self._pause(failures)
            if self._stopping.is_set():
                return ended.exit_code

    async def _pause(self, failures: int) -> None:
        settings = self._settings
        pause_s = min(settings.backoff_s * 2 ** min(failures - 1, 30), settings.backoff_max_s)
        self._state = "restarting"
        self._tell(
            Restarting(
                after_s=self._after_s(),
                in_s=pause_s,
                restart=failures,
                restarts_max=settings.restarts,
            )
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _once(self) -> tuple[Verdict, float]:
        """One life of the engine, and for how long it was ready."""
        try:
            process = await self._start()
        except EngineError as error:
            if self._attempt == 1:
                raise
            short = FailureCause("not_started", str(error), False)  # of memory or processes
            return self._end(NEVER_READY, short, ready=False), 0.0
        self._tell(
            Started(
                after_s=0.0,
                attempt=self._attempt,
                pid=process.pid,
                url=self._command.url,
                command=self._command.shown,
            )
        )
        unneeded = asyncio.Event()
        reading = asyncio.create_task(self._preload(unneeded))
        ended = asyncio.create_task(process.wait())
        ready_at_s = None
        try:
            never = await self._reach_ready(ended)
            if never is None and self._state == "ready":
                ready_at_s = time.monotonic()
                unneeded.set()
                await self._first(ended, asyncio.create_task(self._stopping.wait()), None)
            if not ended.done():
                await self._drain(process, never is not None)
        finally:
            unneeded.set()
            if not ended.done():
                await asyncio.shield(process.stop(0.0))
            await reading
        lasted_s = 0.0 if ready_at_s is None else time.monotonic() - ready_at_s
        outcome = self._end(await ended, never, ready=ready_at_s is not None)
        return outcome, lasted_s

    def _begin(self) -> None:
        self._started_s = time.monotonic()
        self._watch = StartWatch(self._started_s)
        self._state, self._why, self._warm = "starting", "", ()
        self._log.begin()

    async def _start(self) -> EngineProcess:
        try:
            params = await self._params()
        finally:
            self._begin()  # what fails has its own times and log, too
        held = () if self._mps is None else self._mps.descriptors
        return await EngineProcess.start(params, self._log.feed, descriptors=held)

    async def _params(self) -> KeeperParams:
        environment = {**_OUTPUT, **self._command.environment}
        if self._mps is not None:
            environment |= await asyncio.to_thread(self._mps.start)
        return KeeperParams(command=self._command.words, environment=environment)

    async def _reach_ready(self, ended: asyncio.Task[int]) -> FailureCause | None:
        """Until it is ready, has ended or is to end; why it will not be ready."""
        client = TokenClient(self._command)
        asking = asyncio.create_task(self._reach_token(client))
        timeout_s = self._settings.ready_timeout_s
        await self._first(ended, asking, timeout_s, asyncio.create_task(self._stopping.wait()))
        if asking.cancelled():
            if ended.done() or self._stopping.is_set():
                return None
            assert self._watch is not None
            last = f": {self._why}" if self._why else ""
            told = f"gave no token within {timeout_s:g} s, {self._watch.phase()}{last}"
            return FailureCause("never_ready", told, False)
        try:
            token_s = asking.result()
        except KeyRefusedError as error:
            key = "no API key" if self._command.api_key is None else "this API key"
            return FailureCause("key_refused", f"lets nobody in with {key}: {error.message}", True)
        warming = asyncio.create_task(self._become_warm(client, token_s))
        await self._first(ended, warming, None, asyncio.create_task(self._stopping.wait()))
        if not warming.cancelled():
            warming.result()
        return None

    async def _first(
        self,
        one: asyncio.Task[Any],
        other: asyncio.Task[Any],
        timeout_s: float | None,
        *more: asyncio.Task[Any],
    ) -> None:
        """Wait for the first of them, and cancel the others but `one`."""
        await asyncio.wait(
            {one, other, *more}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (other, *more):
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _reach_token(self, client: TokenClient) -> float:
        """Wait for its health and a first token; what this took, in seconds."""
        assert self._watch is not None
        while True:
            if await client.is_up():
                break
            await asyncio.sleep(_POLL_S)
        self._watch.reached("server_up", time.monotonic())
        self._state = "warming"
        self._tell(Up(after_s=self._after_s()))
        while True:
            try:
                timeout_s = self._settings.warm_timeout_s
                await client.find_model(timeout_s=timeout_s)
                asked_s = time.monotonic()
                await client.ask(1, timeout_s=timeout_s)
                break
            except KeyRefusedError:
                raise  # however often it is asked
            except EngineError as error:
                self._why = error.message
                await asyncio.sleep(_RETRY_S)
        self._watch.reached("first_token", time.monotonic())
        self._model = client.model
        return time.monotonic() - asked_s

    async def _become_warm(self, client: TokenClient, token_s: float) -> None:
        """Warm it up, for as long as its requests may take; then it is ready."""
        assert self._watch is not None
        self._warm = await warm_up(
            client,
            self._shapes(client.length_max),
            token_s=token_s,
            timeout_s=self._settings.warm_timeout_s,
            told=lambda took: self._tell(Warmed(after_s=self._after_s(), took=took)),
        )
        self._watch.reached("ready", time.monotonic())
        self._state = "ready"
        self._tell(Ready(after_s=self._after_s(), model=client.model, times=self._watch.times()))
        self._remember(ready=True, cause=None, exit_code=None)

    def _shapes(self, length_max: int | None) -> tuple[Any, ...]:
        settings, watch = self._settings, self._watch
        if settings.warm is not None:
            return settings.warm
        assert watch is not None
        lengths = (length_max, watch.setting("max_model_len"))
        return default_shapes(
            settings.step_tokens or watch.setting("max_num_batched_tokens"),
            settings.active_max or watch.setting("max_num_seqs"),
            min((length for length in lengths if length is not None), default=None),
        )

    async def _drain(self, process: EngineProcess, never_ready: bool) -> None:
        drain_s = self._settings.drain_s
        if never_ready:
            drain_s = min(drain_s, _UNREADY_DRAIN_S)
        self._state = "stopping"
        self._tell(Stopping(after_s=self._after_s(), drain_s=drain_s))
        drained = asyncio.create_task(process.stop(drain_s))
        await self._first(drained, asyncio.create_task(self._hurry.wait()), None)
        process.let_go()
        await drained

    def _end(self, code: int, never: FailureCause | None, *, ready: bool) -> Verdict:
        """Tell how it ended."""
        assert self._watch is not None
        self._log.end()
        gave_token = self._watch.moment_s("first_token") is not None
        found = judge(
            self._command,
            code,
            never,
            lines=self._log.tail(_CAUSE_LINES),
            ready=ready,
            asked=self._stopping.is_set(),
            gave_token=gave_token,
            served_before=self._served,
        )
        self._served = self._served or gave_token
        self._state = "stopped" if found.asked else "failed"
        name = found.cause.name if found.cause is not None else None
        self._tell(
            Ended(
                after_s=self._after_s(),
                exit_code=found.shown_code,
                ready=ready,
                asked=found.asked,
                cause=name,
                why=found.cause.told if found.cause is not None else None,
                tail=tuple(self._log.tail(_TAIL_LINES)),
            )
        )
        if not ready and not found.asked:
            self._remember(ready=False, cause=name, exit_code=found.shown_code)
        return found

    async def _preload(self, unneeded: asyncio.Event) -> None:
        if self._reader is None:
            return
        result = await self._reader.run(unneeded)
        self._tell(Preload(after_s=self._after_s(), result=result))

    def _remember(self, *, ready: bool, cause: str | None, exit_code: int | None) -> None:
        if self._history is None:
            return
        assert self._watch is not None
        record = StartRecord(
            at_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            engine=self._command.kind,
            model=self._command.model or self._model,
            version=self._watch.version(),
            ready=ready,
            cause=cause,
            exit_code=exit_code,
            times=self._watch.times(),
        )
        with contextlib.suppress(OSError):  # a full disk costs the line, not the engine
            self._history.add(record)

    def _take_line(self, text: str) -> None:
        if self._watch is not None and self._state in ("starting", "warming"):
            self._watch.take(text, time.monotonic())

    def _after_s(self) -> float:
        return time.monotonic() - self._started_s
