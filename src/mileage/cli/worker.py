"""Entry point of a worker process; started by `mileage serve`, not by people."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

import uvloop

from mileage.core.ports import RequestLog
from mileage.gateway.config import GatewayConfig
from mileage.gateway.worker import run_worker
from mileage.storage.log import LogWriter

__all__ = ["LOG_FORMAT", "command", "main"]

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def command(directory: Path, segment_bytes_max: int) -> list[str]:
    """How a worker is started; the supervisor adds the sockets and the index."""
    return [sys.executable, "-m", "mileage.cli.worker", str(directory), str(segment_bytes_max)]


def main(arguments: list[str]) -> None:
    """Arguments: ledger directory, segment size, control fd, listening fd, index."""
    directory, segment_bytes_max, control_fd, listening_fd, index = arguments
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    control = socket.socket(fileno=int(control_fd))
    listening = socket.socket(fileno=int(listening_fd))
    control.setblocking(False)

    def open_log(config: GatewayConfig) -> RequestLog:
        return LogWriter(Path(directory), int(index), segment_bytes_max=int(segment_bytes_max))

    uvloop.run(run_worker(control, listening, int(index), open_log))


if __name__ == "__main__":
    main(sys.argv[1:])
