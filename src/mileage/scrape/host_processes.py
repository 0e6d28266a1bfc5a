"""HostProcesses: which processes of this machine are generator, gateway and engine."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
import psutil

from mileage.core.errors import EngineError
from mileage.measure.tail_stage import Role
from mileage.scrape.server_use_process import WORKER_MODULE, ServerProcesses, find_server

__all__ = ["HostProcesses", "find_processes"]


class HostProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """Processes by role, and why a role has none."""

    pids: dict[Role, list[int]]
    missing: dict[Role, str]


def find_processes(url: str, engine_urls: Sequence[str] = ()) -> HostProcesses:
    """This process, and what serves `url`: an engine, or a Mileage gateway's workers and engine.

    `engine_urls` are the engines behind a gateway, where they are servers of their own. Of a
    gateway only the workers count: no request goes through its supervisor.
    """
    pids: dict[Role, list[int]] = {"generator": [os.getpid()]}
    missing: dict[Role, str] = {}
    try:
        server = find_server(url, engine_urls)
    except EngineError as error:
        missing["engine"] = error.message
        server = _gateway_alone(url)
    if server.engine:
        pids["engine"] = [process.pid for process in server.engine]
    if server.gateway:
        workers = [process.pid for process in server.gateway if _is_worker(process)]
        pids["gateway"] = workers or [process.pid for process in server.gateway]
    return HostProcesses(pids=pids, missing=missing)


def _gateway_alone(url: str) -> ServerProcesses:
    """A Mileage gateway on this port, whose engines are not known; else nothing."""
    try:
        found = find_server(url, [url]).engine
    except EngineError:
        return ServerProcesses(())
    return ServerProcesses((), found if any(map(_is_worker, found)) else ())


def _is_worker(process: psutil.Process) -> bool:
    try:
        return WORKER_MODULE in process.cmdline()
    except psutil.Error:
        return False
