"""The replicas of a scale-out: servers that run, servers that are started, those of a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from mileage.core.errors import EngineError
from mileage.loadgen.launched_server import LaunchedServer, free_port, words_of
from mileage.wire.fetch import fetch

__all__ = ["Fleet", "GatewayFleet", "LaunchedFleet", "UrlFleet"]

_ASK_S: Final = 10.0
_POLL_S: Final = 0.2


class Fleet(Protocol):
    """Replicas of which the first so many are to be measured."""

    async def start(self) -> int:
        """Make them ready; returns how many there are. Raises EngineError."""
        ...

    async def use(self, count: int) -> list[str]:
        """Let the first `count` serve alone; returns the URLs to send to. Raises EngineError."""
        ...

    def engines(self, count: int) -> list[str]:
        """URLs of the first `count` replicas themselves; those that are not known are left out."""
        ...

    async def end(self) -> None:
        """Put back what was, and end what was started. Raises EngineError."""
        ...


class UrlFleet:
    """Servers that somebody runs: what is not used idles."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = list(urls)

    async def start(self) -> int:
        """See Fleet."""
        return len(self._urls)

    async def use(self, count: int) -> list[str]:
        """See Fleet."""
        return self._urls[:count]

    def engines(self, count: int) -> list[str]:
        """See Fleet."""
        return self._urls[:count]

    async def end(self) -> None:
        """See Fleet."""


class LaunchedFleet:
    """Servers of one command line, all started before the first run: what is not used idles."""

    def __init__(self, command: str, count: int, *, directory: Path, timeout_s: float) -> None:
        self._command, self._count = command, count
        self._directory, self._timeout_s = directory, timeout_s
        self._servers: list[LaunchedServer] = []

    async def start(self) -> int:
        """See Fleet."""
        for index in range(self._count):
            port = free_port()
            variables, words = words_of(self._command, {"port": str(port), "index": str(index)})
            log = self._directory / f"server-{index}.log"
            server = LaunchedServer(words, variables=variables, port=port, log=log)
            self._servers.append(server)
            server.start()
            # One after the other: a model that loads takes what the next one would.
            await server.ready(fetch, timeout_s=self._timeout_s)
        return self._count

    async def use(self, count: int) -> list[str]:
        """See Fleet."""
        return self.engines(count)

    def engines(self, count: int) -> list[str]:
        """See Fleet."""
        return [server.url for server in self._servers[:count]]

    async def end(self) -> None:
        """See Fleet."""
        for server in self._servers:
            server.stop()


class _Replica(msgspec.Struct):
    name: str
    url: str | None = None
    enabled: bool = True
    state: str = "unknown"


class _Replicas(msgspec.Struct):
    replicas: list[_Replica]


class GatewayFleet:
    """Replicas of a Mileage gateway, switched by its admin plane."""

    def __init__(self, url: str, admin_url: str, token: str, *, timeout_s: float) -> None:
        self._url, self._admin = url, admin_url.rstrip("/")
        self._headers = (("authorization", f"Bearer {token}"),)
        self._timeout_s = timeout_s
        self._known: list[_Replica] = []

    async def start(self) -> int:
        """See Fleet."""
        self._known = await self._replicas()
        if not self._known:
            raise EngineError(self._admin, "the gateway has no replicas")
        return len(self._known)

    async def use(self, count: int) -> list[str]:
        """See Fleet: the first are up, the others disabled and idle."""
        for index, replica in enumerate(self._known):
            await self._switch(replica.name, on=index < count)
        wanted = {replica.name for replica in self._known[:count]}
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._timeout_s
        while True:
            now = {replica.name: replica for replica in await self._replicas()}
            late = [name for name in wanted if name not in now or now[name].state != "up"]
            if not late:
                return [self._url]
            if loop.time() > due_s:
                raise EngineError(self._admin, f"not up: {', '.join(sorted(late))}")
            await asyncio.sleep(_POLL_S)

    def engines(self, count: int) -> list[str]:
        """See Fleet."""
        return [each.url for each in self._known[:count] if each.url is not None]

    async def end(self) -> None:
        """See Fleet."""
        for replica in self._known:
            await self._switch(replica.name, on=replica.enabled)

    async def _switch(self, name: str, *, on: bool) -> None:
        path = f"/api/v1/replicas/{name}/{'enable' if on else 'disable'}"
        answer = await fetch(
            f"{self._admin}{path}", method="POST", headers=self._headers, timeout_s=_ASK_S
        )
        if answer.status >= 300:
            raise EngineError(self._admin, f"{path} answered {answer.status}")

    async def _replicas(self) -> list[_Replica]:
        path = "/api/v1/replicas"
        answer = await fetch(f"{self._admin}{path}", headers=self._headers, timeout_s=_ASK_S)
        if answer.status != 200:
            raise EngineError(self._admin, f"{path} answered {answer.status}")
        try:
            return msgspec.json.decode(answer.body, type=_Replicas).replicas
        except msgspec.MsgspecError as error:
            raise EngineError(self._admin, f"no answer of an admin plane: {error}") from error
