"""WorkerSlot: one worker's place: its socket, its process and its channel while it lives."""

from __future__ import annotations

import asyncio
import socket

from mileage.gateway.channel import Channel
from mileage.gateway.messages import FromWorker

__all__ = ["WorkerSlot"]


class WorkerSlot:
    """Needs a running loop."""

    def __init__(self, index: int, sock: socket.socket) -> None:
        self.index = index
        self.sock = sock
        self.process: asyncio.subprocess.Process | None = None
        self.channel: Channel[FromWorker] | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.version: int | None = None
        """Of the configuration, as the worker has reported."""
        self.mark = 0
        """What it was told before this mark it has taken in."""
        self.in_flight = 0
        """Requests, as reported."""
        self.gpu_weights: dict[str, int] = {}
        """At each replica, as reported."""
        self.others: dict[str, int] = {}
        """The others' weights, as it was told last."""
