"""DownLog: says once on the log that an engine cannot be used, and once that it is back."""

from __future__ import annotations

import logging

from mileage.core.events import Event, ReplicaDown, ReplicaUp

__all__ = ["DownLog"]

_log = logging.getLogger(__name__)


class DownLog:
    """For engines that others run: a gateway whose engine is not there waits, and has to say why.

    Coming back is a warning as well: whoever was shown the one is to be shown the other.
    """

    def __init__(self) -> None:
        self._down: set[str] = set()

    def heard(self, event: Event) -> None:
        """A replica went up or down, or was so already; why it is down begins with its URL."""
        if isinstance(event, ReplicaDown) and event.replica not in self._down:
            self._down.add(event.replica)
            _log.warning("engine %s is down: %s", event.replica, event.reason)
        elif isinstance(event, ReplicaUp) and event.replica in self._down:
            self._down.remove(event.replica)
            _log.warning("engine %s is up now", event.replica)

    def forget(self, name: str) -> None:
        """It is watched no more."""
        self._down.discard(name)
