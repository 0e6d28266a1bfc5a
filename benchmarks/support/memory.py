"""Memory and open files of a program's processes, sampled while it works."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import psutil

from benchmarks.support.processes import Service

__all__ = ["MIB", "ProcessUse", "Sampler", "process_uses", "settled_uses"]

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One process: resident and proportional memory in bytes, descriptors, connections by state.

    `to_engine`: connections to the engine's port; kept ones are a pool and no leak.
    """

    pid: int
    rss: int
    pss: int
    fds: int
    to_engine: int
    half_closed: int

    @property
    def own_fds(self) -> int:
        """Descriptors less the pool of connections to the engine."""
        return self.fds - self.to_engine


def settled_uses(service: Service, engine_port: int) -> dict[int, ProcessUse]:
    """As process_uses, by process the sample with the fewest descriptors of three.

    A health check that is just on its way is no leak.
    """
    settled: dict[int, ProcessUse] = {}
    for number in range(3):
        time.sleep(0.3 if number else 0)
        for pid, use in process_uses(service, engine_port).items():
            if pid not in settled or use.own_fds < settled[pid].own_fds:
                settled[pid] = use
    return settled


def process_uses(service: Service, engine_port: int) -> dict[int, ProcessUse]:
    """By process id, the program itself and its children."""
    uses = {}
    for process in service.tree():
        with suppress(psutil.NoSuchProcess):
            memory = process.memory_full_info()
            connections = process.net_connections(kind="tcp")
            uses[process.pid] = ProcessUse(
                pid=process.pid,
                rss=memory.rss,
                pss=memory.pss,
                fds=process.num_fds(),
                to_engine=sum(1 for c in connections if c.raddr and c.raddr.port == engine_port),
                half_closed=sum(1 for c in connections if c.status == psutil.CONN_CLOSE_WAIT),
            )
    return uses


class Sampler:
    """Samples the resident memory of all processes from a thread, while used as a context."""

    def __init__(self, service: Service, interval_s: float = 0.5) -> None:
        self._service, self._interval_s = service, interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rss: list[int] = []

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            total = 0
            for process in self._service.tree():
                with suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
            self.rss.append(total)
