"""Ends an asyncio server without losing the connections it has just accepted."""

from __future__ import annotations

import asyncio

__all__ = ["close_server"]


async def close_server(server: asyncio.Server) -> None:
    """Accept no more; whoever was accepted has its protocol told before this returns.

    `Server.close` alone drops, unclosed, a connection that was accepted in the same pass of the
    loop (its transport attaches to a server that has no sockets any more): the client waits, and
    whichever test runs when it is collected is blamed for it.
    """
    loop = asyncio.get_running_loop()
    for sock in server.sockets:
        loop.remove_reader(sock.fileno())
    await asyncio.sleep(0)  # the accepted ones get their transports
    await asyncio.sleep(0)  # and their protocols hear of them
    server.close()
