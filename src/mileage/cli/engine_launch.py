"""`mileage engine launch`: start an engine, know when it really serves, keep it running."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.console import Console

from mileage.cli import engine_launch_arguments as arguments
from mileage.cli.config import state_directory
from mileage.cli.engine_launch_plan import planned_command
from mileage.cli.engine_launch_show import show_event
from mileage.cli.ready_file import ReadyFile
from mileage.cli.terminal_text import safe_text
from mileage.core.bounds import require_at_least
from mileage.core.errors import ConfigError, MileageError
from mileage.engines.launch.events import Ended, LaunchEvent, Ready, Stopping
from mileage.engines.launch.family import adopt_orphans
from mileage.engines.launch.launch_command import LaunchCommand
from mileage.engines.launch.log_stream import Echo, LogStream, check_log
from mileage.engines.launch.ready_server import ReadyServer
from mileage.engines.launch.settings import LaunchSettings, MpsSettings
from mileage.engines.launch.start_history import StartHistory
from mileage.engines.launch.supervisor import Supervisor
from mileage.engines.launch.warm_up import parse_shape

__all__ = ["HISTORY_FILE", "launch"]

HISTORY_FILE = "engine-starts.jsonl"
"""In the state directory."""


def launch(
    engine: arguments.KindName,
    words: arguments.Words = None,
    executable: arguments.Executable = None,
    python: arguments.Python = None,
    plan: arguments.PlanFile = None,
    model: arguments.ModelName = None,
    host: arguments.LaunchHost = None,
    port: arguments.LaunchPort = None,
    ready_port: arguments.ReadyPort = None,
    ready_host: arguments.ReadyHost = "127.0.0.1",
    ready_file: arguments.ReadyFile = None,
    ready_timeout_s: arguments.ReadyTimeoutS = 1800.0,
    warm: arguments.Warm = None,
    warm_timeout_s: arguments.WarmTimeoutS = 300.0,
    drain_s: arguments.DrainS = 60.0,
    restarts: arguments.Restarts = 3,
    restart_backoff_s: arguments.BackoffS = 1.0,
    stable_s: arguments.StableS = 600.0,
    log: arguments.LogFile = None,
    quiet: arguments.Quiet = False,
    preload: arguments.Preload = None,
    preload_reserve_gib: arguments.PreloadReserveGib = 4.0,
    mps: arguments.UseMps = False,
    mps_active_thread_percentage: arguments.MpsPercentage = None,
    mps_pipe_dir: arguments.MpsPipeDir = None,
    mps_log_dir: arguments.MpsLogDir = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what happens as JSON documents, one a line.")
    ] = False,
) -> None:
    """Start an engine, warm it up, tell when it has given a token, and keep it running.

    It is started again when it fails. SIGTERM, SIGHUP or Ctrl-C ends it in order, and what is left
    of it after --drain-s is killed; a second one kills at once. The exit code is the engine's, but
    1 where vLLM, SGLang or llama.cpp ended by itself with 0.

    Example: mileage engine launch vllm --model Qwen/Qwen3-8B --ready-port 9000
    """
    command, warnings = planned_command(
        engine,
        words or [],
        plan,
        executable=executable,
        python=python,
        model=model,
        host=host,
        port=port,
    )
    ready = _ready_place(ready_host, ready_port, command)
    require_at_least("--preload-reserve-gib", preload_reserve_gib, 0.0)
    settings = LaunchSettings(
        ready_timeout_s=ready_timeout_s,
        warm_timeout_s=warm_timeout_s,
        drain_s=drain_s,
        restarts=restarts,
        backoff_s=restart_backoff_s,
        stable_s=stable_s,
        warm=tuple(parse_shape(text) for text in warm) if warm else None,
        step_tokens=_flag_number(command, _STEP_FLAGS),
        active_max=_flag_number(command, _ACTIVE_FLAGS),
        preload=_preloaded(preload, command),
        preload_reserve_bytes=round(preload_reserve_gib * 2**30),
        mps=_mps(mps, mps_active_thread_percentage, mps_pipe_dir, mps_log_dir),
    )
    for warning in warnings:
        typer.echo(f"mileage: {warning.field}: {safe_text(warning.message)}", err=True)
    shown = _Shown(quiet=quiet, as_json=as_json, log=log, ready_file=ready_file)
    _run(command, settings, shown, ready)


def _ready_place(host: str, port: int | None, command: LaunchCommand) -> tuple[str, int] | None:
    if port is not None and port == command.port:
        raise ConfigError("--ready-port", port, "another one than the engine's")
    return None if port is None else (host, port)


_STEP_FLAGS = ("--max-num-batched-tokens", "--chunked-prefill-size", "--batch-size", "-b")
_ACTIVE_FLAGS = ("--max-num-seqs", "--max-running-requests", "--parallel", "-np")


def _flag_number(command: LaunchCommand, flags: tuple[str, ...]) -> int | None:
    """What the engine's own flags say; else its log may."""
    return command.number(*flags) or None


def _preloaded(preload: str | None, command: LaunchCommand) -> str | None:
    if preload != "auto":
        return preload
    if command.model is None:
        raise ConfigError("--preload", preload, "a path: the command names no model that is known")
    return command.model


def _mps(
    use: bool, percentage: int | None, pipe: str | None, log: str | None
) -> MpsSettings | None:
    if use:
        return MpsSettings(
            active_thread_percentage=percentage, pipe_directory=pipe, log_directory=log
        )
    for key, value in (
        ("--mps-active-thread-percentage", percentage),
        ("--mps-pipe-dir", pipe),
        ("--mps-log-dir", log),
    ):
        if value is not None:
            raise ConfigError(key, value, "--mps beside it")
    return None


def _run(
    command: LaunchCommand,
    settings: LaunchSettings,
    shown: _Shown,
    ready: tuple[str, int] | None,
) -> None:
    if shown.log is not None:
        check_log(shown.log)
    file = None if shown.ready_file is None else ReadyFile(shown.ready_file)
    try:
        code = asyncio.run(_Launched(command, settings, shown, ready, file).run())
    finally:
        if file is not None:
            file.close()
    if code:
        raise typer.Exit(code if code > 0 else 128 - code)


class _Shown(NamedTuple):
    """What is shown of it, and where."""

    quiet: bool
    as_json: bool
    log: Path | None
    ready_file: Path | None


class _Launched:
    """The supervisor with what it is seen by: terminal, files, readiness endpoint."""

    def __init__(
        self,
        command: LaunchCommand,
        settings: LaunchSettings,
        shown: _Shown,
        ready: tuple[str, int] | None,
        file: ReadyFile | None,
    ) -> None:
        self._command, self._settings, self._shown = command, settings, shown
        self._ready, self._file = ready, file
        self._console = Console(stderr=True, highlight=False)
        self._stderr = Echo(sys.stderr.fileno())
        self._stdout = Echo(sys.stdout.fileno()) if shown.as_json else None
        self._history = StartHistory(state_directory() / HISTORY_FILE)

    async def run(self) -> int:
        """The exit code of the engine. Raises MileageError where it cannot be started at all."""
        supervisor = Supervisor(
            self._command,
            self._settings,
            make_log=self._make_log,
            tell=self._tell,
            history=self._history,
        )
        server = None if self._ready is None else ReadyServer(*self._ready, supervisor.state)
        adopt_orphans()  # what outlives a keeper that is killed
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
                loop.add_signal_handler(number, supervisor.stop)
        try:
            if server is not None:
                await server.start()
                self._stderr.tell(f"readiness at port {server.port}, /ready\n")
            return await supervisor.run()
        finally:
            if server is not None:
                await server.stop()
            for echo in (self._stderr, self._stdout):
                if echo is not None:
                    await asyncio.to_thread(echo.close)

    def _make_log(self, read: Callable[[str], None]) -> LogStream:
        echo = None if self._shown.quiet else self._stderr
        secrets = self._command.secrets
        return LogStream(self._shown.log, echo=echo, read=read, secrets=secrets)

    def _tell(self, event: LaunchEvent) -> None:
        if self._stdout is not None:
            self._stdout.tell(msgspec.json.encode(event).decode() + "\n")
        with self._console.capture() as lines:
            show_event(self._console, event, quiet=self._shown.quiet)
        self._stderr.tell(lines.get())
        if self._file is None:
            return
        if isinstance(event, Ready):
            try:
                self._file.write(event)
            except MileageError as error:
                self._stderr.tell(f"{error}\n")
        elif isinstance(event, Stopping | Ended):
            self._file.remove()
