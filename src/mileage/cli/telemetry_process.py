"""TelemetryProcess: looks at GPUs in a process of its own, which yields to all others."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mileage.cli.telemetry_child import Order, Told, command
from mileage.cli.telemetry_watches import Spec
from mileage.scrape.telemetry_sampler import SamplerStatus
from mileage.storage.gpu_minutes import GpuMinute

__all__ = ["TelemetryProcess"]

_LOG = logging.getLogger(__name__)
_STOP_WAIT_S: Final = 3.0
"""A second more than the process itself waits for a driver that hangs."""
_KILL_WAIT_S: Final = 0.5
_AGAIN_S: Final = 1.0
_AGAIN_MAX_S: Final = 60.0
_NAME: Final = "process"


class TelemetryProcess:
    """In a process of its own while there is a place to look at: neither the interpreter lock nor
    the priority of the gateway's processes is touched by looking.

    `store` takes the minutes that have ended, in a thread. `pids` tells the processes of the
    engine of our own; it is asked once a second. A process that ends by itself is started again,
    less and less often; what is then open of a minute is lost. No method but `stop` blocks.
    """

    def __init__(
        self,
        store: Callable[[Sequence[GpuMinute]], None],
        *,
        host: str,
        log_level: str = "warning",
        pids: Callable[[], Sequence[int]] = tuple,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._store, self._pids, self._again_s = store, pids, again_s
        self._command = command(log_level, host)
        self._changed = threading.Condition()
        self._specs: tuple[Spec, ...] = ()
        self._ending = False
        self._process: subprocess.Popen[bytes] | None = None
        self._status: dict[str, SamplerStatus] = {}
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, while it runs."""
        process = self._process
        return None if process is None else process.pid

    def configure(self, specs: Sequence[Spec]) -> None:
        """Look there, and nowhere else, from a second on; what stays the same goes on."""
        with self._changed:
            self._specs = tuple(specs)
            if self._specs and self._thread is None and not self._ending:
                self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def status(self) -> dict[str, SamplerStatus]:
        """How it went a second ago, by source."""
        return self._status if self._specs else {}

    def stop(self) -> None:
        """End, and tell the minutes that are open; waits a few seconds at most."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            process, thread = self._process, self._thread
        if process is not None:
            process.terminate()
        if thread is not None:
            thread.join(_STOP_WAIT_S)
            if thread.is_alive() and process is not None:
                process.kill()
                thread.join(_KILL_WAIT_S)

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or bool(self._specs))
                if self._ending:
                    return
            began_s = time.monotonic()
            try:
                why = self._attend()
            except (OSError, msgspec.MsgspecError) as error:
                why = str(error)
            with self._changed:
                self._process = None
                if self._ending or not self._specs:
                    failures, self._status = 0, {}
                    continue
                _LOG.warning("looking at GPUs ended: %s", why)
                known = self._status or {_NAME: _NOTHING}
                self._status = {
                    name: msgspec.structs.replace(state, error=why, hanging_s=0.0)
                    for name, state in known.items()
                }
                failures = 0 if time.monotonic() - began_s > _AGAIN_MAX_S else failures + 1
                wait_s = min(_AGAIN_MAX_S, self._again_s * 2 ** min(failures - 1, 16))
                self._changed.wait_for(lambda: self._ending, wait_s)

    def _attend(self) -> str:
        """Start it, tell it where to look, and hear it until it ends; why it did."""
        # In a session of its own: Ctrl-C is for the gateway, which decides what it means.
        process = subprocess.Popen(  # noqa: S603 -- our own module
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            with self._changed:
                self._process = process
                if self._ending:
                    process.terminate()
            self._talk(process)
        except BaseException:
            process.kill()
            raise
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            code = process.wait()
        return f"its process ended with exit code {code}"

    def _talk(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        decoder = msgspec.json.Decoder(Told)
        sent: Order | None = None
        while True:
            order = Order(self._specs, tuple(self._pids()))
            if not order.specs:
                process.terminate()
            elif order != sent:
                process.stdin.write(msgspec.json.encode(order) + b"\n")
                process.stdin.flush()
                sent = order
            line = process.stdout.readline()
            if not line:
                return
            told = decoder.decode(line)
            if told.status is not None:
                self._status = told.status
            if told.minutes:
                self._tell(told.minutes)

    def _tell(self, minutes: Sequence[GpuMinute]) -> None:
        try:
            self._store(minutes)
        except Exception:  # a ledger that fails must not end looking
            _LOG.exception("minutes of GPUs could not be stored")


_NOTHING: Final = SamplerStatus(
    looks=0, failed=0, dropped=0, error=None, period_s=0.0, cpu_ratio=0.0, hanging_s=0.0
)
