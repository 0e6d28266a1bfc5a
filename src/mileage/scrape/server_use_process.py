"""The processes of the server under test: found by the port it listens on; their CPU and memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence

import msgspec
import psutil

from mileage.core.errors import EngineError
from mileage.wire.url import display_url, origin

__all__ = ["ENGINE_MODULE", "WORKER_MODULE", "ServerProcesses", "find_server", "is_local"]

WORKER_MODULE = "mileage.cli.worker"
ENGINE_MODULE = "mileage.engines.embedded.child"
"""How the processes of a Mileage gateway call themselves on their command lines."""
_FORWARDERS = frozenset(
    {"docker-proxy", "rootlessport", "ssh", "sshd", "kubectl", "socat", "nginx", "haproxy", "envoy"}
)
"""Programs that pass a port on: what they use says nothing about the engine behind them."""
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- compared with, not bound


class ServerProcesses(msgspec.Struct, frozen=True):
    """The engine's processes, and those of a Mileage gateway before it (none elsewhere)."""

    engine: tuple[psutil.Process, ...]
    gateway: tuple[psutil.Process, ...] = ()
    roots: tuple[psutil.Process, ...] = ()
    """Those of the engine that are no child of another: while they live it has not restarted."""
    gateway_roots: tuple[psutil.Process, ...] = ()

    def refreshed(self) -> ServerProcesses:
        """The same roots with the descendants that they have now; cheaper than a new search."""
        return _split(self.roots, self.gateway_roots)


def is_local(url: str) -> bool:
    """Whether the URL's host is an address of this machine. Raises ValueError as `origin` does."""
    return bool(_addresses(url) & _own_addresses())


def find_server(url: str, engine_urls: Sequence[str] = ()) -> ServerProcesses:
    """The processes behind `url`, or behind `engine_urls` where `url` is a gateway before them.

    A server is what listens on the port, with all its descendants. Raises EngineError, which says
    why, where they cannot be told.
    """
    if engine_urls:
        roots = _unique(root for one in engine_urls for root in _listeners(one))
        return _split(roots, _listeners(url) if is_local(url) and url not in engine_urls else ())
    roots = _listeners(url)
    tree = _trees(roots)
    if not any(WORKER_MODULE in _command(process) for process in tree):
        return _split(roots, ())
    children = [process for process in tree if ENGINE_MODULE in _command(process)]
    if not children:
        raise EngineError(
            display_url(url),
            "a Mileage gateway listens there whose engines are servers of their own: name them",
        )
    return _split(children, roots)


def _split(
    roots: Sequence[psutil.Process], gateway_roots: Sequence[psutil.Process]
) -> ServerProcesses:
    engine = _trees(roots)
    own = {process.pid for process in engine}
    gateway = tuple(p for p in _trees(gateway_roots) if p.pid not in own)
    return ServerProcesses(tuple(engine), gateway, tuple(roots), tuple(gateway_roots))


def _listeners(url: str) -> list[psutil.Process]:
    """The processes that listen on the URL's port, without those that descend from another."""
    _, _, port = origin(url)
    name, hosts = display_url(url), _addresses(url)
    try:
        found = [
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
            and connection.laddr.port == port
            and (connection.laddr.ip in hosts or connection.laddr.ip in _ANY)
        ]
    except (psutil.Error, OSError) as error:
        raise EngineError(name, f"its process cannot be looked for: {error}") from error
    if not found:
        raise EngineError(name, f"no process of this machine listens on port {port}")
    if None in found:
        raise EngineError(
            name, f"what listens on port {port} belongs to another user, or is in a container"
        )
    try:
        roots = _unique(_highest_holder(psutil.Process(pid), port) for pid in set(found))
        names = {process.name() for process in roots} & _FORWARDERS
    except psutil.Error as error:
        raise EngineError(name, f"its process cannot be read: {error}") from error
    if names:
        raise EngineError(name, f"{min(names)} passes its port on to a server elsewhere")
    if os.getpid() in {process.pid for process in _trees(roots)}:
        raise EngineError(name, "the server is in the process that measures it")
    return roots


def _highest_holder(process: psutil.Process, port: int) -> psutil.Process:
    """The oldest ancestor that holds the listening socket too: workers inherit it from a parent."""
    holder = process
    for ancestor in process.parents():
        try:
            connections = ancestor.net_connections("tcp")
        except psutil.Error:
            break
        if not any(c.laddr and c.laddr.port == port and not c.raddr for c in connections):
            break
        holder = ancestor
    return holder


def _trees(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes and all their descendants that live, each once."""
    found: list[psutil.Process] = []
    for root in roots:
        try:
            found += [root, *root.children(recursive=True)]
        except psutil.Error:
            continue
    return _unique(found)


def _unique(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    return list({process.pid: process for process in processes}.values())


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _addresses(url: str) -> set[str]:
    """The addresses of the URL's host; none where there is no such host."""
    _, host, port = origin(url)
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, port)}
    except OSError:
        return set()


def _own_addresses() -> set[str]:
    return {
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    }
