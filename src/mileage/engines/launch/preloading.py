"""The reading ahead of one launch: in a thread that nobody waits for longer than a moment.

A read from a mount whose server is gone does not return. Such a thread is left to itself: it keeps
neither a restart nor the launcher's end waiting, and no second one is begun beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from mileage.core.errors import FileError
from mileage.engines.launch.preload import Preloaded, preload
from mileage.engines.launch.weight_files import weight_files

__all__ = ["PreloadSlot"]

_LEAVE_S: Final = 2.0
"""A chunk is read in far less, where anything is read at all."""


class _Read(Protocol):
    def __call__(
        self, paths: Sequence[Path], *, reserve_bytes: int, stop: threading.Event
    ) -> Preloaded: ...


class PreloadSlot:
    """Reads the weights of `model` at each start of the engine, unless an earlier read hangs."""

    def __init__(
        self,
        model: str,
        *,
        reserve_bytes: int,
        read: _Read = preload,
        find: Callable[[str], Sequence[Path]] = lambda model: weight_files(model, os.environ),
        leave_s: float = _LEAVE_S,
    ) -> None:
        self._model, self._reserve_bytes = model, reserve_bytes
        self._read, self._find, self._leave_s = read, find, leave_s
        self._returned = threading.Event()
        self._returned.set()

    async def run(self, unneeded: asyncio.Event) -> Preloaded:
        """Read until all is in memory, or until `unneeded` is set and a moment has gone by."""
        if not self._returned.is_set():
            return _nothing("an earlier read of these files still hangs: nothing is read beside it")
        begun_s = time.monotonic()
        loop, stop = asyncio.get_running_loop(), threading.Event()
        found: asyncio.Future[Preloaded] = loop.create_future()

        def give(result: Preloaded) -> None:
            if not found.done():
                found.set_result(result)

        def work() -> None:
            result = self._result(stop)
            self._returned.set()
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody asks any more
                loop.call_soon_threadsafe(give, result)

        # A daemon: neither asyncio nor the interpreter joins it at the end.
        self._returned.clear()
        threading.Thread(target=work, name="engine-preload", daemon=True).start()
        ending = asyncio.create_task(unneeded.wait())
        ending.add_done_callback(lambda _: stop.set())
        try:
            waited: set[asyncio.Future[Any]] = {found, ending}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({found}, timeout=self._leave_s)
        finally:
            ending.cancel()
            stop.set()
        if found.done():
            return found.result()
        text = f"a read of {self._model} does not return (a mount that is gone?): left to itself"
        return _nothing(text, seconds=time.monotonic() - begun_s)

    def _result(self, stop: threading.Event) -> Preloaded:
        try:
            paths = self._find(self._model)
            return self._read(paths, reserve_bytes=self._reserve_bytes, stop=stop)
        except FileError as error:
            return _nothing(str(error))
        except Exception as error:  # else its thread ends without a word, and looks like a hang
            return _nothing(f"it failed: {error or type(error).__name__}")


def _nothing(stopped: str, *, seconds: float = 0.0) -> Preloaded:
    return Preloaded(files=0, bytes=0, bytes_total=0, seconds=seconds, stopped=stopped)
