"""A journal as a gateway leaves it: three requests that a controller was told of."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.control.snapshot import dump_state
from mileage.core.events import Arrived, Event, Finished, ReplicaUp
from mileage.storage.journal_writer import JournalWriter, new_header
from tests.support.journals import request

__all__ = ["BEGAN_UTC_NS", "JournalOfOne", "write_journal"]

BEGAN_UTC_NS = 1_764_428_000_000_000_000


class JournalOfOne:
    """A journal of a controller before one replica, and that controller."""

    def __init__(
        self,
        directory: Path,
        replica: str,
        *,
        worker: int = 0,
        config: ControlConfig | None = None,
        began_s: float = 0.0,
        began_at_utc_ns: int = BEGAN_UTC_NS,
        segment_bytes_max: int = 1 << 22,
    ) -> None:
        config = config or ControlConfig()
        self._controller = Controller((replica,), config=config, random=Random(1))
        header = new_header(
            version="0",
            worker=worker,
            replicas=(replica,),
            lacks={},
            config=msgspec.json.encode(config).decode(),
            seed=1,
        )
        self._writer = JournalWriter(
            directory,
            header,
            segment_bytes_max=segment_bytes_max,
            bytes_max=1 << 24,
            clock=lambda: began_s,
            utc_ns=lambda: began_at_utc_ns,
        )
        self._writer.start(lambda: dump_state(self._controller))

    def tell(self, event: Event, now_s: float) -> None:
        """The controller handles the event, and the journal has it."""
        self._writer.handled(now_s, event, tuple(self._controller.handle(event, now_s)))

    def close(self) -> None:
        """Nothing more comes."""
        self._writer.close()


def write_journal(
    directory: Path,
    worker: int = 0,
    *,
    began_s: float = 50.0,
    began_at_utc_ns: int = BEGAN_UTC_NS,
    output_tokens_max: int | None = None,
) -> None:
    """Three requests, one each second of the worker's own clock, served in half a second."""
    journal = JournalOfOne(
        directory,
        "gpu-a",
        worker=worker,
        began_s=began_s,
        began_at_utc_ns=began_at_utc_ns,
        segment_bytes_max=1 << 16,
    )
    journal.tell(ReplicaUp("gpu-a", ("llama",)), began_s)
    for number in range(3):
        at_s, known_as = began_s + number, number << 6 | worker
        came = request(known_as, arrived_s=at_s, output_tokens_max=output_tokens_max)
        journal.tell(Arrived(came), at_s)
        journal.tell(Finished(known_as, 100 + number, None, 20 + worker), at_s + 0.5)
    journal.close()
