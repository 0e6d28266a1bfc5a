"""The supervisor waits until its workers have taken in what they were told."""

from __future__ import annotations

import asyncio
import socket

import msgspec

from mileage.gateway.config import GatewayConfig, ServerConfig
from mileage.gateway.messages import Mark
from mileage.gateway.supervisor import Supervisor
from mileage.gateway.worker_slot import WorkerSlot


class Worker:
    """Takes in what it is sent, unless it hangs."""

    def __init__(self, supervisor: Supervisor, slot: WorkerSlot) -> None:
        self.hangs = False
        self._supervisor, self._slot = supervisor, slot

    def send(self, message: msgspec.Struct) -> None:
        assert isinstance(message, Mark)
        if not self.hangs:
            asyncio.get_running_loop().call_soon(self.takes_in, message.number)

    def takes_in(self, number: int) -> None:
        self._slot.mark = number
        self._supervisor._reported.set()


def test_all_that_live_are_waited_for() -> None:
    async def main() -> None:
        config = GatewayConfig(server=ServerConfig(workers=2))
        with socket.socket() as one, socket.socket() as other:
            supervisor = Supervisor(
                config, [one, other], ["unused"], on_report=print, on_gone=lambda pid: None
            )
            assert await supervisor.heard(60.0), "there is none yet"
            workers = [Worker(supervisor, slot) for slot in supervisor._slots]
            for slot, worker in zip(supervisor._slots, workers, strict=True):
                slot.channel = worker  # type: ignore[assignment]
            assert await supervisor.heard(60.0)
            workers[1].hangs = True
            assert not await supervisor.heard(0.01)
            waiting = asyncio.create_task(supervisor.heard(60.0))
            await asyncio.sleep(0)
            workers[1].takes_in(4)
            assert await waiting
            supervisor._slots[1].channel = None  # it died
            assert await supervisor.heard(60.0)

    asyncio.run(main())
