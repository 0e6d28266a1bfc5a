"""A port that stays ours while nothing listens on it."""

from __future__ import annotations

import socket

from mileage.core.errors import EngineError

__all__ = ["hold_port"]


def hold_port() -> socket.socket:
    """A free port of 127.0.0.1, kept from others: bound, but not listening.

    The child binds it too (SO_REUSEPORT, same user) and, as the only one that listens, gets every
    connection. The kernel gives the port to no one else, and no client can connect to itself on
    it. Raises EngineError.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
    except OSError as error:
        holder.close()
        raise EngineError("embedded", f"no port of 127.0.0.1 is free: {error}") from error
    return holder
