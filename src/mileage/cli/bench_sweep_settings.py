"""What a sweep changes between its points: a gateway's configuration, by a command, or a server."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from mileage.core.errors import ConfigError
from mileage.loadgen.arms_switch import CommandSwitch, ControlSwitch, until_ready
from mileage.loadgen.launched_server import LaunchedServer, free_port, words_of
from mileage.wire.fetch import fetch

__all__ = [
    "CommandSettings",
    "ControlSettings",
    "LaunchSettings",
    "Settings",
    "Unchanged",
    "settings_of",
]

_ARM: Final = "a"


class Settings(Protocol):
    """Puts a value in force."""

    async def to(self, value: str | None) -> str:
        """Returns the URL of the endpoint once the value is in force there. Raises EngineError."""
        ...

    async def restore(self) -> None:
        """Put back what was before, and end what was started. Raises EngineError."""
        ...


class Unchanged:
    """Nothing is changed."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def to(self, value: str | None) -> str:
        """See Settings."""
        return self._url

    async def restore(self) -> None:
        """See Settings."""


class ControlSettings:
    """Keys of a Mileage gateway, on trial by its admin plane."""

    def __init__(
        self,
        url: str,
        admin_url: str,
        token: str,
        documents: Mapping[str, dict[str, Any]],
        *,
        lease_s: float,
    ) -> None:
        self._url = url
        self._switches = {
            value: ControlSwitch(admin_url, token, {_ARM: document}, lease_s=lease_s)
            for value, document in documents.items()
        }

    async def to(self, value: str | None) -> str:
        """See Settings."""
        assert value is not None
        await self._switches[value].to(_ARM)
        return self._url

    async def restore(self) -> None:
        """See Settings."""
        for switch in self._switches.values():
            await switch.restore()
            return


class CommandSettings:
    """A command of the user's, run by the shell with the value in it."""

    def __init__(
        self, url: str, command: str, *, authorization: str | None, timeout_s: float
    ) -> None:
        self._url, self._command = url, command
        self._authorization, self._timeout_s = authorization, timeout_s

    async def to(self, value: str | None) -> str:
        """See Settings."""
        assert value is not None
        line = self._command.replace("{value}", shlex.quote(value))
        await CommandSwitch({_ARM: line}, timeout_s=self._timeout_s).to(_ARM)
        await until_ready(self._url, authorization=self._authorization, timeout_s=self._timeout_s)
        return self._url

    async def restore(self) -> None:
        """See Settings: the last value stays."""


class LaunchSettings:
    """A server that is started for each value, and ended before the next."""

    def __init__(self, command: str, *, directory: Path, timeout_s: float) -> None:
        self._command, self._directory, self._timeout_s = command, directory, timeout_s
        self._server: LaunchedServer | None = None
        self._number = 0

    async def to(self, value: str | None) -> str:
        """See Settings."""
        await self.restore()
        port = free_port()
        variables, words = words_of(self._command, {"port": str(port), "value": value or ""})
        log = self._directory / f"server-{self._number}.log"
        self._number += 1
        self._server = LaunchedServer(words, variables=variables, port=port, log=log)
        self._server.start()
        await self._server.ready(fetch, timeout_s=self._timeout_s)
        return self._server.url

    async def restore(self) -> None:
        """See Settings."""
        if self._server is not None:
            self._server.stop()
            self._server = None


def settings_of(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Documents by label, of KEY=VALUE,VALUE: each value of a key with each of the others.

    A value is JSON, and text where it is none. Raises ConfigError.
    """
    axes: list[list[tuple[str, Any]]] = []
    for text in texts:
        key, equals, values = text.partition("=")
        parts = [part.strip() for part in values.split(",")]
        if not (equals and key.strip()) or not all(parts) or not all(key.strip().split(".")):
            expected = "KEY=VALUE,VALUE, such as governor.policy=static,model"
            raise ConfigError("--set", text, expected)
        if any(key.strip() == other for axis in axes for other, _ in axis):
            raise ConfigError("--set", text, "each key once")
        axes.append([(key.strip(), _value(part)) for part in parts])
    found: dict[str, dict[str, Any]] = {}
    for chosen in itertools.product(*axes) if axes else ():
        label = ", ".join(f"{key}={_shown(value)}" for key, value in chosen)
        found[label] = _document(chosen)
    return found


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _document(chosen: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in chosen:
        *tables, name = key.split(".")
        place = tree
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise ConfigError("--set", key, "no key that is within another one")
        place[name] = value
    return tree
