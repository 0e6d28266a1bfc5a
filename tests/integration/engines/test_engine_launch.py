"""The supervisor of `mileage engine launch` with a scripted engine: failures, restarts, signals."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest

from mileage.core.errors import EngineError
from mileage.engines.launch.engine_process import EngineProcess
from mileage.engines.launch.events import Ended, LaunchEvent, Ready, Restarting, Started, Warmed
from mileage.engines.launch.launch_command import LaunchKind, launch_command
from mileage.engines.launch.log_stream import LogStream
from mileage.engines.launch.settings import LaunchSettings
from mileage.engines.launch.start_history import StartHistory
from mileage.engines.launch.supervisor import Supervisor
from mileage.engines.launch.warm_up import WarmShape
from tests.support.gateway import free_port
from tests.support.launching import ENGINE

QUICK = LaunchSettings(backoff_s=0.01, drain_s=30.0, warm=(WarmShape(1, 1),))


class Run:
    """A supervisor of a scripted engine, and what it told; `on` sees each event as it comes."""

    def __init__(
        self,
        *words: str,
        kind: LaunchKind = "command",
        settings: LaunchSettings = QUICK,
        history: StartHistory | None = None,
        on: Callable[[Run, LaunchEvent], None] = lambda run, event: None,
    ) -> None:
        command = launch_command("command", [*ENGINE, "--port", "{port}", *words], port=0)
        command = msgspec.structs.replace(command, kind=kind)
        self.told: list[LaunchEvent] = []
        self.port = command.port

        def tell(event: LaunchEvent) -> None:
            self.told.append(event)
            on(self, event)

        async def run() -> int:
            self.supervisor = Supervisor(
                command,
                settings,
                make_log=lambda read: LogStream(None, echo=None, read=read),
                tell=tell,
                history=history,
            )
            return await self.supervisor.run()

        self.code = asyncio.run(run())

    def of(self, kind: type[LaunchEvent]) -> list[LaunchEvent]:
        return [event for event in self.told if isinstance(event, kind)]


def stop_when_ready(run: Run, event: LaunchEvent) -> None:
    if isinstance(event, Ready):
        run.supervisor.stop()


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_an_engine_that_dies_is_started_again_and_is_ready_again(tmp_path: Path) -> None:
    def die_once(run: Run, event: LaunchEvent) -> None:
        if not isinstance(event, Ready):
            return
        if len(run.of(Ready)) == 1:
            assert run.supervisor.state()[0]
            with pytest.raises(httpx.TransportError):
                httpx.post(f"http://127.0.0.1:{run.port}/die", json={"code": 7})
        else:
            run.supervisor.stop()

    states = []

    def on(run: Run, event: LaunchEvent) -> None:
        if isinstance(event, Ended | Restarting):
            states.append(run.supervisor.state()[0])
        die_once(run, event)

    history = StartHistory(tmp_path / "starts.jsonl")
    run = Run(on=on, history=history)
    assert run.code == 0
    ended = [event for event in run.told if isinstance(event, Ended)]
    assert [(event.exit_code, event.ready) for event in ended] == [(7, True), (0, True)]
    assert states == [False, False, False]
    assert [record.ready for record in history.records()] == [True, True]


def die_with_0(run: Run, event: LaunchEvent) -> None:
    if isinstance(event, Ready):
        with pytest.raises(httpx.TransportError):
            httpx.post(f"http://127.0.0.1:{run.port}/die", json={"code": 0})


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_an_engine_that_ends_with_0_unasked_has_failed(kind: LaunchKind) -> None:
    settings = msgspec.structs.replace(QUICK, restarts=1)
    run = Run(kind=kind, settings=settings, on=die_with_0)
    assert run.code == 1
    ended = [event for event in run.told if isinstance(event, Ended)]
    assert [(event.exit_code, event.ready, event.cause) for event in ended] == [
        (0, True, "ended_unasked")
    ] * 2


def test_a_command_that_ends_with_0_was_meant_to_end_if_it_was_ready() -> None:
    run = Run(on=die_with_0)
    assert run.code == 0
    assert len(run.of(Started)) == 1
    last = run.told[-1]
    assert isinstance(last, Ended)
    assert last.cause is None
    unready = Run("--exit", "0", settings=msgspec.structs.replace(QUICK, restarts=1))
    assert unready.code == 1
    assert len(unready.of(Started)) == 2


@pytest.fixture
def starts_fail(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Starts of an engine's process that fail, by number from 1."""
    fail: set[int] = set()
    numbers = itertools.count(1)
    start = EngineProcess.start

    async def instead(*arguments: Any, **options: Any) -> EngineProcess:
        if next(numbers) in fail:
            raise EngineError("engine", "cannot be started: [Errno 12] Cannot allocate memory")
        return await start(*arguments, **options)

    monkeypatch.setattr(EngineProcess, "start", instead)
    return fail


def test_a_later_start_that_fails_is_tried_again(tmp_path: Path, starts_fail: set[int]) -> None:
    starts_fail |= {2, 3}
    words = ("--starts", str(tmp_path / "starts"), "--exit", "1", "--exits", "1")
    history = StartHistory(tmp_path / "starts.jsonl")
    run = Run(*words, on=stop_when_ready, history=history)
    assert run.code == 0
    ended = [event for event in run.told if isinstance(event, Ended)]
    assert [event.cause for event in ended] == [None, "not_started", "not_started", None]
    assert "Cannot allocate memory" in (ended[1].why or "")
    pauses = [event.in_s for event in run.told if isinstance(event, Restarting)]
    assert pauses == [0.01, 0.02, 0.04]
    assert [record.ready for record in history.records()] == [False, False, False, True]


def test_starts_that_go_on_failing_end_it(starts_fail: set[int]) -> None:
    starts_fail |= {2, 3}
    settings = msgspec.structs.replace(QUICK, restarts=2)
    assert Run("--exit", "7", settings=settings).code == 1


def test_a_first_start_that_fails_is_an_error(starts_fail: set[int]) -> None:
    starts_fail |= {1}
    with pytest.raises(EngineError, match="Cannot allocate memory"):
        Run()


def test_a_crash_loop_ends_with_the_engines_code(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("INFO 1\nRuntimeError: something broke\n")
    history = StartHistory(tmp_path / "starts.jsonl")
    settings = msgspec.structs.replace(QUICK, restarts=2)
    run = Run("--log", str(log), "--exit", "3", settings=settings, history=history)
    assert run.code == 3
    assert len(run.of(Started)) == 3
    pauses = [event.in_s for event in run.told if isinstance(event, Restarting)]
    assert pauses == [0.01, 0.02]
    last = run.told[-1]
    assert isinstance(last, Ended)
    assert not last.ready
    assert last.tail[-1] == "RuntimeError: something broke"
    assert [record.exit_code for record in history.records()] == [3, 3, 3]


def test_an_engine_that_was_never_ready_has_failed_in_a_row_however_short_stable_is() -> None:
    def stop_late(run: Run, event: LaunchEvent) -> None:
        if isinstance(event, Started) and event.attempt == 5:
            run.supervisor.stop()

    settings = msgspec.structs.replace(QUICK, restarts=1, stable_s=0.0)
    run = Run("--exit", "3", settings=settings, on=stop_late)
    assert run.code == 3
    assert len(run.of(Started)) == 2


def test_what_will_not_change_is_not_tried_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ValueError: Invalid repository ID or local directory specified: '/none'\n")
    run = Run("--log", str(log), "--exit", "1")
    assert run.code == 1
    assert len(run.of(Started)) == 1
    last = run.told[-1]
    assert isinstance(last, Ended)
    assert last.cause == "model_missing"


def test_a_launch_that_has_served_is_not_over_for_what_looks_permanent(tmp_path: Path) -> None:
    """The model's mount is away while the engine is started again, and comes back."""
    log = tmp_path / "log"
    log.write_text("ValueError: Invalid repository ID or local directory specified: '/mnt'\n")
    second = ("--starts", str(tmp_path / "starts"), "--exit", "1", "--exit-in", "2")

    def die_then_stop(run: Run, event: LaunchEvent) -> None:
        if not isinstance(event, Ready):
            return
        if len(run.of(Ready)) == 2:
            run.supervisor.stop()
            return
        with pytest.raises(httpx.TransportError):
            httpx.post(f"http://127.0.0.1:{run.port}/die", json={"code": 7})

    run = Run("--log", str(log), *second, on=die_then_stop)
    assert run.code == 0
    ended = [event for event in run.told if isinstance(event, Ended)]
    assert [event.cause for event in ended] == [None, "model_missing", None]


def test_failures_before_a_good_start_are_forgiven(tmp_path: Path) -> None:
    run = Run(
        *("--starts", str(tmp_path / "starts"), "--exit", "1", "--exits", "2"), on=stop_when_ready
    )
    assert run.code == 0
    assert len(run.of(Started)) == 3


def test_a_token_that_never_comes() -> None:
    """The time is short, and the machine may be busy: started again until it was up in time."""
    settings = msgspec.structs.replace(QUICK, ready_timeout_s=3.0, restarts=20)

    def stop_once_seen(run: Run, event: LaunchEvent) -> None:
        if isinstance(event, Ended) and "answered without a token" in (event.why or ""):
            run.supervisor.stop()

    run = Run("--empty", settings=settings, on=stop_once_seen)
    assert run.code == 1
    assert not run.of(Ready)
    ended = [event for event in run.told if isinstance(event, Ended)]
    assert {event.cause for event in ended} == {"never_ready"}
    assert all("gave no token within 3 s" in (event.why or "") for event in ended)
    assert "answered without a token" in (ended[-1].why or "")


def test_a_key_that_is_refused_is_not_tried_again() -> None:
    run = Run("--other-key", "another", "--api-key", "mine")
    assert run.code == 1
    assert len(run.of(Started)) == 1
    last = run.told[-1]
    assert isinstance(last, Ended)
    assert last.cause == "key_refused"
    assert last.why == "lets nobody in with this API key: answered 401: another key"


def test_the_key_of_any_command_is_used() -> None:
    assert Run("--api-key", "mine", on=stop_when_ready).code == 0


def test_a_warm_up_may_take_longer_than_the_first_token() -> None:
    settings = msgspec.structs.replace(
        QUICK, warm=(WarmShape(2, 1),), ready_timeout_s=3.0, restarts=20
    )  # a busy machine may need a few starts until a token comes in time
    assert Run("--slow-s", "1.6", settings=settings, on=stop_when_ready).code == 0


def test_a_shape_that_is_refused_is_told_and_no_more() -> None:
    settings = msgspec.structs.replace(QUICK, warm=(WarmShape(64, 1), WarmShape(2, 3)))
    run = Run("--refuse-over", "32", settings=settings, on=stop_when_ready)
    first, second = (event.took for event in run.told if isinstance(event, Warmed))
    assert first.failed is not None
    assert "the prompt is too long" in first.failed
    assert first.first_s is None
    assert second.failed is None
    assert second.second_s is not None


def test_an_engine_that_only_chats() -> None:
    assert Run("--chat-only", on=stop_when_ready).code == 0


def test_an_engine_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    settings = msgspec.structs.replace(QUICK, drain_s=0.2)
    run = Run("--deaf", "--child", str(child), settings=settings, on=stop_when_ready)
    assert run.code == -signal.SIGKILL
    assert not _lives(int(child.read_text()))


def test_a_second_signal_ends_it_at_once() -> None:
    def stop_twice(run: Run, event: LaunchEvent) -> None:
        if isinstance(event, Ready):
            run.supervisor.stop()
            run.supervisor.stop()

    settings = msgspec.structs.replace(QUICK, drain_s=3600.0)
    assert Run("--deaf", settings=settings, on=stop_twice).code == -signal.SIGKILL


def test_a_program_that_is_not_there() -> None:
    async def run() -> tuple[int, list[LaunchEvent]]:
        told: list[LaunchEvent] = []
        supervisor = Supervisor(
            launch_command("vllm", [], executable="/nowhere/vllm", model="m", port=free_port()),
            QUICK,
            make_log=lambda read: LogStream(None, echo=None, read=read),
            tell=told.append,
        )
        return await supervisor.run(), told

    code, told = asyncio.run(run())
    assert code == 127
    assert isinstance(told[-1], Ended)
    assert told[-1].cause == "program_missing"
    assert "give the path of vllm by --executable, or by --python" in (told[-1].why or "")
    assert "/nowhere/vllm: cannot be started: No such file or directory" in told[-1].tail[0]


def test_a_port_that_is_taken_is_told_before_anything_is_started() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = launch_command("command", ["true"], port=taken.getsockname()[1])
        with pytest.raises(EngineError, match="Address already in use"):
            command.check_port()
