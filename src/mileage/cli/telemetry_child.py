"""Entry point of the process that looks at GPUs beside a gateway; not started by people."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from mileage.cli.logs import set_up_logs
from mileage.cli.telemetry_watches import Spec, TelemetryWatches
from mileage.scrape.telemetry_sampler import SamplerStatus
from mileage.storage.gpu_minutes import GpuMinute

__all__ = ["Order", "Told", "command", "main"]

_STATUS_S: Final = 1.0
_NICEST: Final = 19
_READ_BYTES: Final = 64 * 1024


class Order(msgspec.Struct, frozen=True):
    """Where to look from now on. `pids`: of the engine of our own."""

    specs: tuple[Spec, ...] = ()
    pids: tuple[int, ...] = ()


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is told: how it goes, once a second, or minutes that have ended."""

    status: dict[str, SamplerStatus] | None = None
    minutes: tuple[GpuMinute, ...] = ()


def command(log_level: str, host: str) -> list[str]:
    """How it is started. `log_level` is what `log_settings` made."""
    return [sys.executable, "-m", "mileage.cli.telemetry_child", log_level, host]


def main(arguments: Sequence[str]) -> None:
    """Arguments: log level, name of the machine. Each line of stdin is an Order, of stdout a Told.

    Ends at SIGTERM, and when stdin does, as it does when the gateway is gone.
    """
    log_level, host = arguments
    set_up_logs(log_level)
    yield_to_others()
    orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda *_: orders.put(None))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    teller = _Teller(sys.stdout.buffer)
    threading.Thread(target=_hear, args=(sys.stdin.fileno(), orders), daemon=True).start()
    pids: tuple[int, ...] = ()
    watches = TelemetryWatches(
        lambda minutes: teller.tell(Told(minutes=tuple(minutes))), host=host, pids=lambda: pids
    )
    due_s = time.monotonic()
    while True:
        try:
            order = orders.get(timeout=max(0.0, due_s - time.monotonic()))
        except queue.Empty:
            teller.tell(Told(status=watches.status()))
            due_s = time.monotonic() + _STATUS_S
            continue
        if order is None:
            break
        pids = order.pids
        watches.configure(order.specs)
    watches.stop()


def yield_to_others() -> None:
    """Run only where nothing else wants to: looking is never worth a request's time.

    The policy counts among processes of one control group; where Linux groups them by session,
    the group's nice value does. Other systems have nice alone.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(f"{_NICEST}")
    with contextlib.suppress(OSError):
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.nice(_NICEST)


def _hear(descriptor: int, orders: queue.SimpleQueue[Order | None]) -> None:
    """Not by `sys.stdin`: a thread that waits in it holds its lock, for want of which the
    interpreter aborts where it ends."""
    decoder = msgspec.json.Decoder(Order)
    rest = b""
    while data := os.read(descriptor, _READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            orders.put(decoder.decode(line))
    orders.put(None)


class _Teller:
    """Writes lines, from any thread."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def tell(self, told: Told) -> None:
        line = msgspec.json.encode(told) + b"\n"
        with self._lock, contextlib.suppress(OSError):  # nobody listens: stdin ends, too
            self._out.write(line)
            self._out.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
