"""Channel: messages between the supervisor and a worker, over a socket pair."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["Channel"]

_LENGTH = struct.Struct("!I")
_log = logging.getLogger(__name__)
_BYTES_MAX = 64 * 1024 * 1024

T = TypeVar("T")


class Channel(Generic[T]):
    """Sends any of our message structs, receives those of the type `T`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: Any
    ) -> None:
        self._reader, self._writer = reader, writer
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(received)

    @classmethod
    async def open(cls, sock: socket.socket, received: Any) -> Channel[T]:
        """A channel over a connected socket, which it owns from now on, also where this fails."""
        try:
            reader, writer = await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            raise
        return cls(reader, writer, received)

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message; what a dead peer does not read is dropped with it."""
        if not self._writer.is_closing():
            data = self._encoder.encode(message)
            self._writer.write(_LENGTH.pack(len(data)) + data)

    async def receive(self) -> T | None:
        """The next message; None when the peer is gone, or speaks another language."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > _BYTES_MAX:
                return None
            return self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except msgspec.DecodeError:
            _log.exception("a message between supervisor and worker is not what was expected")
            return None

    def close(self) -> None:
        """Close the socket."""
        self._writer.close()

    async def finish(self, timeout_s: float) -> None:
        """Close the socket once the peer has taken what was sent; after `timeout_s` at the latest.

        Raises nothing.
        """
        self._writer.close()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(timeout_s):
                await self._writer.wait_closed()
