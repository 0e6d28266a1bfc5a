"""Supervisor with workers that fail: told at the start, started again later, whatever listens."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable

import pytest

from mileage.core.errors import MileageError
from mileage.gateway import supervisor as module
from mileage.gateway.config import GatewayConfig, ServerConfig
from mileage.gateway.messages import Report
from mileage.gateway.supervisor import Supervisor, bind

WITHIN_S = 60.0
READS = """
import socket, struct, sys
import msgspec
from mileage.gateway.messages import Ready, Report
channel = socket.socket(fileno=int(sys.argv[1]))
def send(message):
    data = msgspec.msgpack.encode(message)
    channel.sendall(struct.pack("!I", len(data)) + data)
"""
SERVES = f"""{READS}
send(Ready(1))
send(Report(pid=1, at_s=1.0, connections=0, in_flight=0, draining=False, ledger_ok=True,
            families=[], replicas=[]))
"""
LIVES = "while channel.recv(65536): pass\n"
DIES_AFTER_A_MOMENT = "import time; time.sleep(0.05)\n"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- what another process does
        await asyncio.sleep(0.01)


def with_supervisor(
    program: str,
    check: Callable[[Supervisor], Awaitable[None]],
    *,
    on_report: Callable[[Report], None] = lambda report: None,
    on_gone: Callable[[int], None] = lambda pid: None,
) -> None:
    """Run the check beside workers of this program; nothing is left of them in the end."""

    async def main() -> None:
        config = ServerConfig(port=0, workers=2)
        sockets = bind(config)
        supervisor = Supervisor(
            GatewayConfig(server=config),
            sockets,
            [sys.executable, "-c", program],
            on_report=on_report,
            on_gone=on_gone,
        )
        try:
            async with asyncio.timeout(WITHIN_S):
                await check(supervisor)
        finally:
            pids = supervisor.pids
            await supervisor.stop()
            for sock in sockets:
                sock.close()
            for pid in pids:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param("raise SystemExit(3)", r"worker \d ended with exit code 3", id="by itself"),
        pytest.param("import os; os.abort()", r"worker \d ended with exit code -6", id="by signal"),
    ],
)
def test_start_fails_where_a_worker_dies_before_it_serves(program: str, message: str) -> None:
    async def check(supervisor: Supervisor) -> None:
        with pytest.raises(MileageError, match=message):
            await supervisor.start()

    with_supervisor(program, check)


def test_a_start_that_hangs_can_be_given_up() -> None:
    async def check(supervisor: Supervisor) -> None:
        start = asyncio.ensure_future(supervisor.start())
        await until(lambda: len(supervisor.pids) == 2)
        start.cancel()
        await supervisor.stop()  # within the time of all

    with_supervisor(f"{READS}{LIVES}", check)


def test_a_worker_that_dies_later_is_started_again_whatever_its_listeners_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports, gone = [], []

    def on_report(report: Report) -> None:
        reports.append(report)
        raise ValueError("a report that is not understood")

    def on_gone(pid: int) -> None:
        gone.append(pid)
        raise ValueError("a worker that was not known")

    async def check(supervisor: Supervisor) -> None:
        await supervisor.start()
        await until(lambda: len(gone) >= 4 and len(reports) >= 6)

    with caplog.at_level(logging.ERROR):
        with_supervisor(SERVES + DIES_AFTER_A_MOMENT, check, on_report=on_report, on_gone=on_gone)
    assert len(set(gone)) == len(gone)
    assert "ended with exit code 0; starting it again in 0.25 s" in caplog.text
    assert "a report that is not understood" in caplog.text


def test_a_stop_does_not_wait_for_the_pause_before_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_BACKOFF_S", 600.0)
    monkeypatch.setattr(module, "_BACKOFF_MAX_S", 600.0)

    async def check(supervisor: Supervisor) -> None:
        await supervisor.start()
        await until(lambda: not supervisor.pids)
        await supervisor.stop()  # within the time of all

    with_supervisor(SERVES + DIES_AFTER_A_MOMENT, check)
