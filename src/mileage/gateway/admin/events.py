"""Live updates: one document a second to every open dashboard, as server-sent events."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from mileage.gateway.admin.responses import error

__all__ = ["EventStream", "Hub"]


class Hub:
    """Hands the newest document to the subscribers; a slow one misses some and holds up nobody.

    There is no queue: each subscriber knows the number of the document it saw last.
    """

    def __init__(self, subscribers_max: int) -> None:
        self._subscribers_max = subscribers_max
        self._subscribers = 0
        self._number = 0
        self._document = b""
        self._news = asyncio.Event()
        self.closed = False

    @property
    def subscribers(self) -> int:
        """Open streams."""
        return self._subscribers

    def publish(self, document: bytes) -> None:
        """Make this the newest document; a JSON text in one line."""
        self._number += 1
        self._document = document
        self._wake()

    def close(self) -> None:
        """End every stream."""
        self.closed = True
        self._wake()

    def enter(self) -> bool:
        """Take a place; False if none is free."""
        if self.closed or self._subscribers >= self._subscribers_max:
            return False
        self._subscribers += 1
        return True

    def leave(self) -> None:
        """Give the place back."""
        self._subscribers -= 1

    async def next(self, seen: int) -> tuple[int, bytes] | None:
        """The newest document and its number, once it is newer than `seen`; None after the end."""
        while not self.closed and self._number <= seen:
            await self._news.wait()
        return None if self.closed else (self._number, self._document)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class EventStream:
    """The ASGI endpoint of the live updates."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._hub.enter():
            refusal = error(
                503,
                "No place for another live view (admin.subscribers_max), or the gateway ends.",
                code="too_many_subscribers",
                headers={"retry-after": "5"},
            )
            await refusal(scope, receive, send)
            return
        sender = asyncio.create_task(self._send(send, head=scope["method"] == "HEAD"))
        leaver = asyncio.create_task(_left(receive))
        try:
            done, _ = await asyncio.wait({sender, leaver}, return_when=asyncio.FIRST_COMPLETED)
            if sender in done:
                sender.result()
        finally:
            for task in (sender, leaver):
                task.cancel()
            await asyncio.gather(sender, leaver, return_exceptions=True)
            self._hub.leave()

    async def _send(self, send: Send, *, head: bool) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # The first bytes go out at once, so that a page knows that it is connected.
        await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
        seen = 0
        while not head and (news := await self._hub.next(seen)) is not None:
            seen, document = news
            body = b"id: %d\nevent: update\ndata: %b\n\n" % (seen, document)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
