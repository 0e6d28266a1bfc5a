"""AdapterFetches: adapter files that are fetched to this machine, each by a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from mileage.core.errors import EngineError
from mileage.policy.residency.adapters import AdapterConfig

__all__ = ["AdapterFetches"]


class AdapterFetches:
    """`fetch` blocks for as long as it likes. A thread cannot be ended: one that takes too long
    goes on, and who asks for the same file again waits for it. None keeps the process alive."""

    def __init__(self, fetch: Callable[[AdapterConfig], object]) -> None:
        self._fetch = fetch
        self._running: dict[str, asyncio.Future[None]] = {}
        """By path."""

    async def fetch(self, adapter: AdapterConfig, timeout_s: float) -> None:
        """Raises EngineError where the file has not come by then, else what `fetch` raises."""
        future = self._running.get(adapter.path) or self._begin(adapter)
        done, _ = await asyncio.wait((future,), timeout=timeout_s)
        if not done:
            said = f"its file has not come within {timeout_s:.0f} s; it is still being fetched"
            raise EngineError(adapter.name, said)
        future.result()

    def _begin(self, adapter: AdapterConfig) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def ended(error: Exception | None) -> None:
            self._running.pop(adapter.path, None)
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # perhaps nobody waits any more

        def work() -> None:
            error: Exception | None = None
            try:
                self._fetch(adapter)
            except Exception as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(ended, error)

        threading.Thread(target=work, name=f"fetch {adapter.name}", daemon=True).start()
        self._running[adapter.path] = future  # not before: there may be no thread to be had
        return future
