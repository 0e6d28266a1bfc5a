"""The timed server (benchmarks.support.timed_server) as a process of its own, and its truth."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from benchmarks.support.processes import LOCAL, Service, free_port
from benchmarks.support.timed_server import Truth

__all__ = ["ServerTruth", "TimedUpstream"]


class ServerTruth(msgspec.Struct):
    """What the server did: each request by its x-request-id, and the stalls, on its clock."""

    requests: dict[str, Truth]
    stalls: list[tuple[float, float]]


class TimedUpstream(Service):
    """A running timed server on one core."""

    def __init__(self, directory: Path, *, core: int, gap_ms: float = 20.0) -> None:
        self.port = free_port()
        argv = [sys.executable, "-m", "benchmarks.support.timed_server", "--port", str(self.port)]
        argv += ["--gap-ms", str(gap_ms)]
        super().__init__("timed server", argv, core=core, log=directory / "timed-server.log")

    def __enter__(self) -> TimedUpstream:
        self.wait_ready(f"{self.url}/v1/models")
        return self

    @property
    def url(self) -> str:
        """http://127.0.0.1:port."""
        return f"http://127.0.0.1:{self.port}"

    def truth(self) -> ServerTruth:
        """What it did since it was asked for the last time."""
        with LOCAL.open(f"{self.url}/truth", timeout=60) as answer:
            return msgspec.json.decode(answer.read(), type=ServerTruth)
