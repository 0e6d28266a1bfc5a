"""Engines that answer from a table, and time that passes only when it is slept through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from mileage.wire.fetch import FetchError, FetchResponse

__all__ = ["Pages", "TableEngine", "VirtualTime"]

Answer: TypeAlias = str | int | Callable[[float], str]
"""A body, a status, or a body by the time at which it is asked for."""
Pages: TypeAlias = Mapping[str, Answer]
"""URL -> answer; any other URL is a 404, of another server than these a refused connection."""


class VirtualTime:
    """A clock, and a sleep to move it: a long one wakes all short ones whose time comes."""

    STEP_MAX_S = 5.0
    """What sleeps longer than this moves the clock; the others wait for it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def clock(self) -> float:
        """Monotonic seconds."""
        return self.now_s

    def wall(self) -> float:
        """Unix seconds."""
        return self.now_s + 1_700_000_000.0

    async def sleep(self, length_s: float) -> None:
        """Until it has passed."""
        end_s = self.now_s + length_s
        if length_s < self.STEP_MAX_S:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((end_s, future))
            await future
            return
        await self._settle()
        while self.now_s < end_s:
            soonest = min((at for at, _ in self._waiting), default=end_s)
            self.now_s = min(end_s, max(soonest, self.now_s))
            due = [item for item in self._waiting if item[0] <= self.now_s]
            self._waiting = [item for item in self._waiting if item[0] > self.now_s]
            for _, future in due:
                if not future.done():
                    future.set_result(None)
            if self.now_s < end_s:
                await self._settle()

    async def _settle(self) -> None:
        """Let everyone go on who can."""
        for _ in range(50):
            await asyncio.sleep(0)


class TableEngine:
    """Answers as `Fetch` does; `asked` has the URLs and the headers of every request."""

    def __init__(self, pages: Pages, time: VirtualTime) -> None:
        self._pages, self._time = pages, time
        self.asked: list[tuple[str, tuple[tuple[str, str], ...]]] = []

    async def __call__(
        self,
        url: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        timeout_s: float,
        body_bytes_max: int = 0,
    ) -> FetchResponse:
        """The page of the URL."""
        self.asked.append((url, tuple(headers)))
        assert timeout_s > 0
        server = "/".join(url.split("/")[:3])
        if not any(page.startswith(server) for page in self._pages):
            raise FetchError(url, "connect", "connection refused")
        answer = self._pages.get(url, 404)
        if isinstance(answer, int):
            return FetchResponse(answer, (), b"")
        body = (answer if isinstance(answer, str) else answer(self._time.now_s)).encode()
        if len(body) > body_bytes_max:
            raise FetchError(url, "broken", f"answer larger than {body_bytes_max} bytes")
        return FetchResponse(200, (), body)
