"""The step engine (benchmarks.support.step_engine) as a process of its own."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.support.processes import LOCAL, NotReadyError, Service, free_port

__all__ = ["StepUpstream", "late_steps"]

_LATE_MEAN_RATIO = 0.05
_STALLED_RATIO = 0.01


class StepUpstream(Service):
    """A running step engine on one core; `options` are those of its command line.

    It runs `slots` sequences at once.
    """

    def __init__(
        self, directory: Path, *, core: int, slots: int = 64, **options: str | float
    ) -> None:
        self.slots = slots
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        argv = [sys.executable, "-m", "benchmarks.support.step_engine", "--port", str(self.port)]
        argv += ["--running-max", str(slots)]
        for name, value in options.items():
            argv += [f"--{name.replace('_', '-')}", str(value)]
        super().__init__("step engine", argv, core=core, log=directory / "step-engine.log")
        try:
            self.wait_ready(f"{self.url}/health", timeout_s=20)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> StepUpstream:
        return self

    @property
    def url(self) -> str:
        """Its base."""
        return f"http://127.0.0.1:{self.port}"

    def stats(self) -> dict[str, Any]:
        """What it did (see the engine's own `stats`)."""
        with LOCAL.open(f"{self.url}/stats", timeout=10) as answer:
            counts: dict[str, Any] = json.load(answer)
        return counts

    def reset_lags(self) -> None:
        """Forget how late its steps were so far."""
        LOCAL.open(f"{self.url}/stats?reset", timeout=10).close()

    def wait_idle(self, timeout_s: float = 30.0) -> None:
        """Wait until nothing runs or waits in it; raises NotReadyError."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            stats = self.stats()
            if not stats["running"] and not stats["waiting"]:
                return
            time.sleep(0.05)
        raise NotReadyError(f"the step engine is still busy after {timeout_s} s")


def late_steps(lags: dict[str, float]) -> str | None:
    """What is wrong with a run whose steps ended so late; None where they kept their times.

    A late end is made up for by the next step, so that a mean delay of a few percent changes no
    throughput; time given up for good does.
    """
    if not lags["steps"]:
        return None
    mean_ratio = lags["sum_s"] / lags["steps_s"]
    stalled_ratio = lags["stalled_s"] / lags["steps_s"]
    if mean_ratio <= _LATE_MEAN_RATIO and stalled_ratio <= _STALLED_RATIO:
        return None
    return (
        f"the step engine's steps ended {mean_ratio:.1%} of their time late on average "
        f"(at most {lags['max_s'] * 1e3:.0f} ms); {stalled_ratio:.1%} of the time was given up"
    )
