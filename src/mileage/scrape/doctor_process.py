"""The process of an engine on this machine: its command line, its environment, its log file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from mileage.core.errors import EngineError
from mileage.doctor.collect.launch_arguments import engine_of_command
from mileage.doctor.collect.process_facts import EngineProcess
from mileage.scrape.server_use_process import find_server, is_local
from mileage.wire.url import display_url

__all__ = ["engine_process"]

HEAD_BYTES: Final = 4 * 1024 * 1024
TAIL_BYTES: Final = 4 * 1024 * 1024
_VARIABLES: Final = frozenset(
    {"OMP_NUM_THREADS", "NCCL_P2P_DISABLE", "VLLM_SKIP_P2P_CHECK", "VLLM_USE_V1"}
)
"""All that is kept of the environment: the rest holds keys."""
_OUTPUTS: Final = (1, 2)


def engine_process(url: str) -> EngineProcess:
    """The process that listens on the URL's port, or the first below it that starts an engine.

    Raises EngineError, which says why, where the engine is elsewhere or cannot be looked at.
    """
    name = display_url(url)
    if not is_local(url):
        raise EngineError(name, "its process is on another machine")
    server = find_server(url)
    for process in server.engine:
        try:
            words = tuple(process.cmdline())
        except psutil.Error:
            continue
        if engine_of_command(words) is not None:
            return EngineProcess(
                words=words, environment=_environment(process), log=_log(process.pid)
            )
    raise EngineError(name, "no command line of an engine that we know")


def _environment(process: psutil.Process) -> dict[str, str] | None:
    try:
        whole = process.environ()
    except (psutil.Error, OSError):
        return None
    return {key: value for key, value in whole.items() if key in _VARIABLES}


def _log(pid: int) -> tuple[str, ...]:
    """Lines of the file that its output goes to; none where that is no file of this machine."""
    seen: set[tuple[int, int]] = set()
    lines: list[str] = []
    for number in _OUTPUTS:
        path = Path(f"/proc/{pid}/fd/{number}")
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            lines += _ends(path, status.st_size)
        except OSError:
            continue
    return tuple(lines)


def _ends(path: Path, size: int) -> Iterable[str]:
    """The begin of a file, where a start is, and its end, where the load is."""
    with path.open("rb") as file:
        if size <= HEAD_BYTES + TAIL_BYTES:
            data = file.read(HEAD_BYTES + TAIL_BYTES)
        else:
            data = file.read(HEAD_BYTES).rpartition(b"\n")[0] + b"\n"
            file.seek(-TAIL_BYTES, os.SEEK_END)
            data += file.read(TAIL_BYTES).partition(b"\n")[2]
    return data.decode("utf-8", "replace").splitlines()
