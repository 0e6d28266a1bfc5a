"""Memory and open files of a program's processes, sampled while it works."""

from __future__ import annotations

import os
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
    """One process: resident and proportional memory in bytes, and its descriptors by kind.

    `sockets` are without the pool of connections to the engine, which is no leak; `half_closed`
    are connections that the other side has closed and we have not.
    """

    pid: int
    rss: int
    pss: int
    sockets: int
    others: tuple[str, ...]
    half_closed: int


def process_uses(service: Service, engine_port: int) -> dict[int, ProcessUse]:
    """By process id, the program itself and its children."""
    uses = {}
    for process in service.tree():
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            uses[process.pid] = _process_use(process, engine_port)
    return uses


def settled_uses(service: Service, engine_port: int) -> dict[int, ProcessUse]:
    """As process_uses, by process the sample with the fewest sockets of several.

    A health check that is just on its way is no leak.
    """
    settled: dict[int, ProcessUse] = {}
    for number in range(4):
        time.sleep(0.3 if number else 0)
        for pid, use in process_uses(service, engine_port).items():
            if pid not in settled or use.sockets < settled[pid].sockets:
                settled[pid] = use
    return settled


def _process_use(process: psutil.Process, engine_port: int) -> ProcessUse:
    memory = process.memory_full_info()
    while True:
        before = process.net_connections(kind="tcp")
        links = _links(process.pid)
        after = process.net_connections(kind="tcp")
        if {c.fd for c in before} == {c.fd for c in after}:
            break  # the pool kept still meanwhile
    pool = {f"{c.fd}" for c in after if c.raddr and c.raddr.port == engine_port}
    others = sorted(target for target in links.values() if not target.startswith("socket:"))
    return ProcessUse(
        pid=process.pid,
        rss=memory.rss,
        pss=memory.pss,
        sockets=len(links) - len(others) - len(pool),
        others=tuple(others),
        half_closed=sum(1 for c in after if c.status == psutil.CONN_CLOSE_WAIT),
    )


def _links(pid: int) -> dict[str, str]:
    """What each descriptor of a process is."""
    links = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            links[fd] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return links


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
