"""The supervisor divides what is meant for all workers by what each has to do."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest

from mileage.core.events import OthersSeen, ShareChanged
from mileage.gateway.config import GatewayConfig, ServerConfig
from mileage.gateway.messages import Deliver
from mileage.gateway.supervisor import Supervisor


class Told:
    """What a worker is sent."""

    def __init__(self) -> None:
        self.ratios: list[float] = []
        self.others: list[tuple[tuple[str, int], ...]] = []

    def send(self, message: msgspec.Struct) -> None:
        assert isinstance(message, Deliver)
        (event,) = message.events
        if isinstance(event, OthersSeen):
            self.others.append(event.weights)
            return
        assert isinstance(event, ShareChanged)
        self.ratios.append(event.ratio)


def test_a_worker_is_told_what_the_others_have_when_that_changes() -> None:
    async def main() -> None:
        config = GatewayConfig(server=ServerConfig(workers=3))
        sockets = [socket.socket() for _ in range(3)]
        supervisor = Supervisor(
            config, sockets, ["unused"], on_report=print, on_gone=lambda pid: None
        )
        for sock in sockets:
            sock.close()
        told = [Told() for _ in range(3)]
        slots = supervisor._slots
        for slot, each in zip(slots, told, strict=True):
            slot.channel = each  # type: ignore[assignment]
        supervisor._tell_others(slots[0])
        slots[1].gpu_weights = {"a": 5, "b": 2}
        slots[2].gpu_weights = {"a": 1}
        for _ in range(2):
            for slot in slots:
                supervisor._tell_others(slot)
        assert [each.others for each in told] == [
            [(("a", 6), ("b", 2))],
            [(("a", 1),)],
            [(("a", 5), ("b", 2))],
        ]
        slots[1].channel = slots[2].channel = None  # they died
        supervisor._tell_others(slots[0])
        assert told[0].others[1:] == [()]

    asyncio.run(main())


def test_a_busy_worker_gets_the_larger_share_and_a_lone_one_all() -> None:
    async def main() -> None:
        config = GatewayConfig(server=ServerConfig(workers=2))
        with socket.socket() as one, socket.socket() as other:
            supervisor = Supervisor(
                config, [one, other], ["unused"], on_report=print, on_gone=lambda pid: None
            )
            told = [Told(), Told()]
            for slot, each in zip(supervisor._slots, told, strict=True):
                slot.channel = each  # type: ignore[assignment]
            supervisor._share_out()
            assert [each.ratios for each in told] == [[0.5], [0.5]]
            supervisor._slots[0].in_flight = 100
            for _ in range(8):
                supervisor._share_out()
            assert told[0].ratios[-1] == pytest.approx(0.85)
            assert told[0].ratios[-1] + told[1].ratios[-1] == pytest.approx(1.0)
            supervisor._slots[1].channel = None
            supervisor._share_out()
            assert told[0].ratios[-1] == pytest.approx(1.0)

    asyncio.run(main())
