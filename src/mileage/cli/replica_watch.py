"""ReplicaWatch: has it on record how long each replica was up, made ready, or was down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from mileage.ledger.replica_clock import ReplicaClock, ReplicaSeen
from mileage.ledger.replica_time import ReplicaTime

__all__ = ["ReplicaWatch"]

PERIOD_S = 5.0
"""What a gateway that is killed leaves untold at most."""
_log = logging.getLogger(__name__)


class ReplicaWatch:
    """Looks every few seconds, and whenever it is told that something changed.

    `seen` tells what each replica is now; `store` takes the stretches and must not block.
    """

    def __init__(
        self,
        seen: Callable[[], Mapping[str, ReplicaSeen]],
        store: Callable[[Sequence[ReplicaTime]], None],
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        utc_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._seen, self._store = seen, store
        self._monotonic_ns, self._utc_ns = monotonic_ns, utc_ns
        self._clock = ReplicaClock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in a running event loop."""
        self.look()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="replica-watch")

    async def stop(self) -> None:
        """Tell of the time until now, and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self.look()

    def look(self) -> None:
        """Something is about to change, or has just done so. Raises nothing: what goes wrong here
        must not keep a replica from being used."""
        try:
            rows = self._clock.look(self._monotonic_ns(), self._utc_ns(), self._seen())
            if rows:
                self._store(rows)
        except Exception:
            _log.exception("the time of replicas could not be told")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            self.look()
