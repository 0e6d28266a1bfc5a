"""A stack: a gateway under test (or none), with its programs and the ports it is called on."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.support.processes import Service

__all__ = ["ROOT", "Stack", "Upstreams", "first_line"]

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""


@dataclass(frozen=True, slots=True)
class Upstreams:
    """Ports of the engines behind a gateway, for whole answers and for streams."""

    chat_port: int
    stream_port: int


class Stack:
    """A stack of programs; leaving it as a context manager stops them all.

    `key`: what its clients send as bearer token. `reencodes`: its streams come out in other bytes
    than they went in, so only their text can be compared.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        chat_port: int,
        stream_port: int,
        key: str | None = None,
        reencodes: bool = False,
    ) -> None:
        self.name, self.version, self.key, self.reencodes = name, version, key, reencodes
        self.chat_port, self.stream_port = chat_port, stream_port
        self.services: list[Service] = []
        self._exits = ExitStack()

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exits.close()

    def start(self, service: Service, ready_url: str, timeout_s: float) -> Service:
        """Own a service and wait for it; where it does not come up everything is stopped."""
        self._exits.enter_context(service)
        self.services.append(service)
        try:
            service.wait_ready(ready_url, timeout_s)
        except BaseException:
            self._exits.close()
            raise
        return service

    def cpu_s(self) -> float:
        """CPU seconds of all its programs so far."""
        return sum(service.cpu_s() for service in self.services)

    def log_tail(self) -> str:
        """The end of what its programs printed."""
        return "\n".join(service.log_tail() for service in self.services)


def first_line(argv: list[str]) -> str:
    """The first line that a program prints, such as its version."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return next(iter((done.stdout or done.stderr).strip().splitlines()), "unknown")
