"""A process for test_usage_kill.py: records requests, feeds them and shares GPU time out.

It runs until it is killed. Argument: DIRECTORY. Says `ready` on stdout, and `worked` when it has
recorded so many requests that there is something to lose.

Its clock runs 200 times as fast as ours, and goes on where it was when the last one was killed.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random

from mileage.core.errors import LedgerError
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.replica_time import ReplicaTime
from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter
from mileage.storage.open_ledger import open_ledger
from tests.support.ledger_records import request
from tests.support.usage_world import at_ns, ran

__all__ = ["main"]

SPEED = 200
WORKED_REQUESTS = 100
_NS = 1_000_000_000


def begin_s(directory: Path) -> float:
    """The second of the hour in which the clock begins: some time after replicas were seen last."""
    try:
        _, connection = open_ledger(directory)
    except LedgerError:
        return 3500.0
    with closing(connection):
        last_ns = connection.execute("SELECT max(until_utc_ns) FROM replica_time").fetchone()[0]
    return 3500.0 if last_ns is None else (last_ns - at_ns(0)) / _NS + 60.0


def main(directory: Path) -> None:
    """Run until killed."""
    random = Random(os.getpid())
    begin, began_s = begin_s(directory), time.monotonic()

    def now() -> float:
        return begin + (time.monotonic() - began_s) * SPEED

    feeder = Feeder(
        directory,
        interval_s=0.002,
        batch_rows=100,
        attribution=AttributionConfig(),
        utc_ns=lambda: at_ns(now()),
    )
    writer = LogWriter(directory, 0, segment_bytes_max=1 << 16)
    feeder.start()
    os.write(1, b"ready\n")
    seen, number = begin, 0
    while True:
        arrived = now()
        replica = random.choice(["a", "b"])
        end = ran(number, arrived, random.uniform(0.1, 30), replica=replica)
        intent = request(number, id=end.id, tenant=end.tenant)
        if writer.intent(intent, end.arrived_at_utc_ns) and random.random() < 0.997:
            writer.finish(end)
        number += 1
        if number == WORKED_REQUESTS:
            os.write(1, b"worked\n")
        until = now()
        feeder.note_replicas(
            [
                ReplicaTime("a", at_ns(seen), at_ns(until), 1.0, "h100", "up"),
                ReplicaTime("b", at_ns(seen), at_ns(until), 0.3, "h100", "up"),
            ]
        )
        seen = until
        time.sleep(0.001)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
