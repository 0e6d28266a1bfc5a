"""A journal as a gateway leaves it: three requests that a controller was told of."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.control.snapshot import dump_state
from mileage.core.events import Arrived, Finished, ReplicaUp
from mileage.storage.journal_writer import JournalWriter, new_header
from tests.support.journals import request

__all__ = ["BEGAN_UTC_NS", "write_journal"]

BEGAN_UTC_NS = 1_764_428_000_000_000_000


def write_journal(
    directory: Path,
    worker: int = 0,
    *,
    began_s: float = 50.0,
    began_at_utc_ns: int = BEGAN_UTC_NS,
    output_tokens_max: int | None = None,
) -> None:
    """Three requests, one each second of the worker's own clock, served in half a second."""
    config = ControlConfig()
    controller = Controller(("gpu-a",), config=config, random=Random(1))
    header = new_header(
        version="0",
        worker=worker,
        replicas=("gpu-a",),
        lacks={},
        config=msgspec.json.encode(config).decode(),
        seed=1,
    )
    writer = JournalWriter(
        directory,
        header,
        segment_bytes_max=1 << 16,
        bytes_max=1 << 24,
        clock=lambda: began_s,
        utc_ns=lambda: began_at_utc_ns,
    )
    writer.start(lambda: dump_state(controller))
    up = ReplicaUp("gpu-a", ("llama",))
    writer.handled(began_s, up, tuple(controller.handle(up, began_s)))
    for number in range(3):
        at_s = began_s + number
        arrived = Arrived(
            request(number << 6 | worker, arrived_s=at_s, output_tokens_max=output_tokens_max)
        )
        writer.handled(at_s, arrived, tuple(controller.handle(arrived, at_s)))
        finished = Finished(number << 6 | worker, 100 + number, None, 20 + worker)
        writer.handled(at_s + 0.5, finished, tuple(controller.handle(finished, at_s + 0.5)))
    writer.close()
