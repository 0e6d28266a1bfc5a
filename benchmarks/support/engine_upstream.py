"""The local engine (benchmarks.support.engine) as a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.support.processes import LOCAL, Service, free_port

__all__ = ["EngineUpstream"]


class EngineUpstream(Service):
    """A running local engine on one core; it serves both models on `port`."""

    def __init__(self, directory: Path, *, core: int) -> None:
        self.port = free_port()
        argv = [sys.executable, "-m", "benchmarks.support.engine", "--port", str(self.port)]
        super().__init__("engine", argv, core=core, log=directory / "engine.log")
        try:
            self.wait_ready(f"http://127.0.0.1:{self.port}/health", timeout_s=20)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> EngineUpstream:
        return self

    def stats(self) -> dict[str, int]:
        """Requests it saw: `requests`, `finished`, `aborted`, `open`, `open_max`."""
        with LOCAL.open(f"http://127.0.0.1:{self.port}/stats", timeout=10) as answer:
            counts: dict[str, int] = json.load(answer)
        return counts
