"""The embedded engine alone (benchmarks.support.embedded_alone) as a process on one core."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path

from benchmarks.support.processes import LOCAL, NotReadyError, Service

__all__ = ["EmbeddedUpstream"]

_START_TIMEOUT_S = 300.0
_BUSY = ("llamacpp:requests_processing", "llamacpp:requests_deferred")


class EmbeddedUpstream(Service):
    """A running llama.cpp as `mileage serve` would start it; `key` is what it wants of clients."""

    def __init__(self, directory: Path, *, core: int, slots: int, weights: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        ready = directory / "ready.json"
        argv = [sys.executable, "-m", "benchmarks.support.embedded_alone", "--ready", str(ready)]
        argv += ["--slots", str(slots), "--threads", "1", "--weights", weights]
        super().__init__("embedded engine", argv, core=core, log=directory / "alone.log")
        try:
            self._wait_for(ready)
        except BaseException:
            self.stop()
            raise
        found = json.loads(ready.read_text())
        self.url: str = found["url"]
        self.port = int(self.url.rpartition(":")[2])
        self.key: str = found["authorization"].removeprefix("Bearer ")

    def __enter__(self) -> EmbeddedUpstream:
        return self

    def _wait_for(self, ready: Path) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not ready.exists():
            if time.monotonic() > deadline or not self.tree():
                raise NotReadyError(f"the embedded engine does not come up:\n{self.log_tail()}")
            time.sleep(0.1)

    def wait_idle(self, timeout_s: float = 60.0) -> None:
        """Wait until nothing runs or waits in it; raises NotReadyError."""
        request = urllib.request.Request(
            f"{self.url}/metrics", headers={"Authorization": f"Bearer {self.key}"}
        )
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                text = LOCAL.open(request, timeout=5).read().decode()
            except OSError:  # all its threads are taken
                text = ""
            busy = [float(line.split()[1]) for line in text.splitlines() if line.startswith(_BUSY)]
            if busy and not any(busy):
                return
            time.sleep(0.2)
        raise NotReadyError(f"the embedded engine is still busy after {timeout_s:.0f} s")
