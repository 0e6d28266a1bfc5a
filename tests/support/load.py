"""Load on a gateway from threads of the test, with every answer's request id written down."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.local_http import LOCAL

__all__ = ["Load"]

_TIMEOUT_S = 60.0


class Load:
    """Sends one request after the other from each thread, until left.

    `finished` are the ids of requests whose answer was received whole; `broken` counts those that
    got none (the connection broke) and `refused` the statuses of refusals.
    """

    def __init__(self, url: str, body: dict[str, Any], *, threads: int = 4) -> None:
        self._url, self._body = f"{url}/chat/completions", body
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        self._lock = threading.Condition()
        self.finished: list[int] = []
        self.refused: list[int] = []
        self.broken = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End; returns when every request has ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT_S)
            assert not thread.is_alive(), "a request of the load has no end"

    def wait_for_more(self, count: int, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until so many more requests are finished."""
        with self._lock:
            goal = len(self.finished) + count
            done = self._lock.wait_for(lambda: len(self.finished) >= goal, timeout_s)
            assert done, f"no {count} answers within {timeout_s:g} s: {self}"

    def __str__(self) -> str:
        return f"{len(self.finished)} finished, {self.broken} broken, refused {self.refused}"

    def _run(self) -> None:
        with httpx.Client(**LOCAL) as client:
            while not self._stop.is_set():
                self._one(client)

    def _one(self, client: httpx.Client) -> None:
        try:
            answer = client.post(self._url, json=self._body)
        except httpx.TransportError:
            with self._lock:
                self.broken += 1
            # A server that is gone refuses at once: do not spin on it.
            time.sleep(0.02)
            return
        with self._lock:
            if answer.status_code == 200:
                self.finished.append(int(answer.headers["x-request-id"].removeprefix("req-"), 16))
            else:
                self.refused.append(answer.status_code)
            self._lock.notify_all()
