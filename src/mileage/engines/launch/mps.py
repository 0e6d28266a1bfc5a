"""CUDA's Multi-Process Service for an engine that shares its GPU: the control daemon of a launch.

The daemon's interface is NVIDIA's: `nvidia-cuda-mps-control -d` starts it, and the same program
sends it the commands that stand on its standard input (`get_server_list`, `quit`). Which daemon is
meant is told by CUDA_MPS_PIPE_DIRECTORY, to clients as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.engines.launch.keeper_params import AtEnd

__all__ = ["Mps", "check_pipe", "start_mps"]

_CONTROL: Final = "nvidia-cuda-mps-control"
_COMMAND_S: Final = 10.0
_PIPE_PATH_MAX: Final = 80
"""Of a socket's path, of at most 107 bytes, the rest is the daemon's own."""


class Mps(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that runs; `started`: by us, so that it is ours to end."""

    pipe_directory: str
    log_directory: str
    started: bool
    environment: dict[str, str]
    """Of the engine."""
    at_end: AtEnd
    """What ends it, when all that use it are gone."""


def start_mps(
    *,
    active_thread_percentage: int | None = None,
    pipe_directory: str | None = None,
    log_directory: str | None = None,
    control: str = _CONTROL,
) -> Mps:
    """Use the daemon of `pipe_directory`, or start one there; without it in a new directory.

    The percentage (1..100) bounds the share of the GPU's threads that the engine may use. Raises
    ConfigError for it, EngineError where the program is missing or the daemon does not start.
    """
    if active_thread_percentage is not None and not 1 <= active_thread_percentage <= 100:
        raise ConfigError("--mps-active-thread-percentage", active_thread_percentage, "1..100")
    own = tempfile.mkdtemp(prefix="mileage-mps-") if pipe_directory is None else None
    pipe = pipe_directory or f"{own}/pipe"
    try:
        check_pipe(pipe)
    except ConfigError:
        _remove(own)
        raise
    log = log_directory or (f"{own}/log" if own else f"{pipe}-log")
    where = {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": log}
    try:
        for directory in (pipe, log):
            Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
        started = own is not None or not _answers(control, where)
        if started:
            _start(control, where)
    except OSError as error:
        _remove(own)
        raise EngineError(control, f"{error.filename}: {error.strerror}") from None
    except EngineError:
        _remove(own)
        raise
    environment = dict(where)
    if active_thread_percentage is not None:
        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(active_thread_percentage)
    remove = (own,) if own is not None else ()
    end = AtEnd(command=(control,), text="quit\n", environment=where, remove=remove)
    return Mps(
        pipe_directory=pipe,
        log_directory=log,
        started=started,
        environment=environment,
        at_end=end,
    )


def check_pipe(pipe: str) -> None:
    """Raises ConfigError for a path that no socket can be made in."""
    if len(pipe) > _PIPE_PATH_MAX:
        expected = f"a path of at most {_PIPE_PATH_MAX} characters: a socket is made in it"
        raise ConfigError("--mps-pipe-dir", pipe, expected)


def _remove(directory: str | None) -> None:
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _answers(control: str, where: dict[str, str]) -> bool:
    """Is there a daemon at this pipe?"""
    return _run((control,), where, "get_server_list\n").returncode == 0


def _start(control: str, where: dict[str, str]) -> None:
    ended = _run((control, "-d"), where, "")
    if ended.returncode != 0:
        said = (ended.stdout + ended.stderr).decode("utf-8", "replace").strip()
        raise EngineError(control, f"the daemon did not start ({ended.returncode}): {said[-300:]}")


def _run(
    command: tuple[str, ...], where: dict[str, str], text: str
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603 -- NVIDIA's program, or what the user names
            command,
            env={**os.environ, **where},
            input=text.encode(),
            capture_output=True,
            timeout=_COMMAND_S,
            check=False,
        )
    except FileNotFoundError:
        message = "is not on the path: it comes with NVIDIA's driver; MPS needs it"
        raise EngineError(command[0], message) from None
    except subprocess.TimeoutExpired:
        raise EngineError(command[0], f"no answer within {_COMMAND_S:g} s") from None
