"""`mileage serve` on its own engine, with or without metering, and the CPU time of both."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.calls import Call, Mix
from benchmarks.support.cpu_clock import process_cpu_s, tree_cpu_s
from benchmarks.support.load_client import Loop, run_loops
from benchmarks.support.mileage import metering_lines
from benchmarks.support.processes import NotReadyError, Service, free_port
from benchmarks.support.stacks import Stack

__all__ = ["EmbeddedGateway", "Used", "short_answers"]

MODEL = "smollm2"
PROMPT_TOKENS = (24, 48)
OUTPUT_TOKENS = 16
"""Short: the engine has little to do, and metering weighs the more."""
CONNECTIONS = 8
_READY_S = 120.0


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds of gateway and engine over some time, and what was answered in it."""

    wall_s: float
    gateway_s: float
    engine_s: float
    answered: int = 0
    error: str | None = None

    def per_1000(self, cpu_s: float) -> float:
        """CPU seconds for a thousand requests."""
        return cpu_s / max(1, self.answered) * 1000


def short_answers(seed: int, count: int) -> list[Call]:
    """The same requests for the same seed; none is like another one."""
    mix = Mix(
        model=MODEL,
        prompt_tokens=PROMPT_TOKENS,
        output_tokens=(OUTPUT_TOKENS, OUTPUT_TOKENS),
        words=True,
    )
    return mix.calls(seed, [0.0] * count)


class EmbeddedGateway(Stack):
    """A gateway as it comes, with the engine that it starts itself, on all cores."""

    def __init__(self, directory: Path, *, metering: bool) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port, admin_port = free_port(), free_port()
        lines = ["[server]", f"port = {port}", "[admin]", f"port = {admin_port}"]
        lines += ["[journal]", f"directory = {json.dumps(str(directory / 'journal'))}"]
        lines += metering_lines(directory, metering=metering)
        config = directory / "mileage.toml"
        config.write_text("\n".join(lines) + "\n")
        name = f"embedded, {'with' if metering else 'without'} metering"
        super().__init__(name, "", chat_port=port, stream_port=port)
        program = str(Path(sys.executable).parent / "mileage")
        argv = [program, "serve", "--json", "--config", str(config)]
        state = {"XDG_STATE_HOME": str(directory / "state")}
        log = directory / "mileage.log"
        self.service = Service(name, argv, core=None, log=log, env=state)
        self.start(self.service, f"http://127.0.0.1:{port}/readyz", timeout_s=_READY_S)
        self._engine_pids = _engine_pids(self.service)

    def __enter__(self) -> EmbeddedGateway:
        return self

    def answer(self, calls: Sequence[Call], timeout_s: float = 120.0) -> Used:
        """What answering these takes, in a closed loop."""
        before, began_s = self._cpu_s(), time.monotonic()
        loop = Loop(iter(calls), CONNECTIONS)
        done = run_loops(self.stream_port, [loop], duration_s=timeout_s)
        wrong = next((c.error or f"status {c.status}" for c in done if c.e2e_s is None), None)
        if wrong is None and len(done) != len(calls):
            wrong = f"{len(done)} of {len(calls)} answers"
        answered = sum(call.e2e_s is not None for call in done)
        return self.since(before, began_s, answered=answered, error=wrong)

    def mark(self) -> tuple[tuple[float, float], float]:
        """For `since`."""
        return self._cpu_s(), time.monotonic()

    def since(
        self,
        before: tuple[float, float],
        began_s: float,
        *,
        answered: int = 0,
        error: str | None = None,
    ) -> Used:
        """What was used since a `mark`."""
        gateway_s, engine_s = self._cpu_s()
        return Used(
            wall_s=time.monotonic() - began_s,
            gateway_s=gateway_s - before[0],
            engine_s=engine_s - before[1],
            answered=answered,
            error=error,
        )

    def _cpu_s(self) -> tuple[float, float]:
        engine_s = sum(map(process_cpu_s, self._engine_pids))
        return tree_cpu_s(self.service.pid, apart=self._engine_pids), engine_s


def _engine_pids(service: Service) -> tuple[int, ...]:
    """As the gateway prints them once it serves."""
    for _ in range(100):
        for line in service.log.read_text(errors="replace").splitlines():
            if line.startswith("{"):
                return tuple(json.loads(line)["engine_pids"])
        time.sleep(0.05)
    raise NotReadyError(f"{service.name} does not tell its engine:\n{service.log_tail()}")
