"""Entry point of a worker process; started by `mileage serve`, not by people."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

import msgspec
import uvloop

from mileage import __version__
from mileage.cli.logs import set_up_logs
from mileage.core.errors import MileageError
from mileage.core.ports import JournalSink, RequestLog
from mileage.gateway.config import GatewayConfig
from mileage.gateway.worker import lacks_of, run_worker
from mileage.storage.config import LedgerConfig
from mileage.storage.journal_writer import JournalWriter, new_header
from mileage.storage.log import LogWriter

__all__ = ["command", "main"]

_log = logging.getLogger(__name__)


def command(directory: Path, ledger: LedgerConfig, log_level: str) -> list[str]:
    """How a worker is started; the supervisor adds the sockets and the index.

    `log_level` is what `log_settings` made.
    """
    config = msgspec.json.encode(ledger).decode()
    return [sys.executable, "-m", "mileage.cli.worker", log_level, str(directory), config]


def main(arguments: list[str]) -> None:
    """Arguments: log level, ledger directory and configuration, control fd, listening fd, index."""
    log_level, directory, ledger, control_fd, listening_fd, index = arguments
    set_up_logs(log_level)
    control = socket.socket(fileno=int(control_fd))
    listening = socket.socket(fileno=int(listening_fd))
    control.setblocking(False)

    def open_log(config: GatewayConfig) -> RequestLog | None:
        options = msgspec.json.decode(ledger, type=LedgerConfig)
        if not options.enabled:
            return None
        return LogWriter(
            Path(directory),
            int(index),
            segment_bytes_max=options.segment_bytes_max,
            token_times=options.token_times,
        )

    def open_journal(config: GatewayConfig, seed: int) -> JournalSink | None:
        options = config.journal
        if not options.enabled or options.directory is None:
            return None
        header = new_header(
            version=__version__,
            worker=int(index),
            replicas=[upstream.name for upstream in config.upstreams],
            lacks=lacks_of(config),
            config=msgspec.json.encode(config.control).decode(),
            seed=seed,
        )
        return JournalWriter(
            Path(options.directory),
            header,
            segment_bytes_max=options.segment_bytes_max,
            bytes_max=options.bytes_max,
        )

    try:
        uvloop.run(run_worker(control, listening, int(index), open_log, open_journal))
    except MileageError as error:
        _log.error("worker %s: %s", index, error)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
