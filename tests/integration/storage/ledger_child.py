"""A process for test_kill.py: writes requests to the log, or feeds the log, until it is killed.

Arguments: `write DIRECTORY WORKER SEED` or `feed DIRECTORY`. The writer says on stdout, after the
fact, what the log has acknowledged: `i NUMBER` for an intent, `f NUMBER` for an end.
"""

from __future__ import annotations

import os
import sys
import threading
from random import Random

from mileage.core.timeline import RequestTimeline
from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter
from tests.support.ledger_records import BASE_UTC_NS, request, streamed, timeline

__all__ = ["end_of", "main"]


def end_of(number: int, worker: int) -> RequestTimeline:
    """The end of request `number`: every third one is a stream."""
    return streamed(number, worker) if number % 3 == 0 else timeline(number, worker)


def write(directory: str, worker: int, seed: int) -> None:
    """Requests in flight: up to 20, which end in any order, some never."""
    random = Random(seed)
    writer = LogWriter(directory, worker, segment_bytes_max=1 << 16)
    number, flying = seed * 1_000_000, list[int]()
    while True:
        if len(flying) < random.randrange(1, 20):
            number += 1
            if writer.intent(request(number, worker), BASE_UTC_NS):
                os.write(1, b"i %d\n" % number)
            flying.append(number)
        else:
            done = flying.pop(random.randrange(len(flying)))
            if done % 97 and writer.finish(end_of(done, worker)):
                os.write(1, b"f %d\n" % done)


def feed(directory: str) -> None:
    """Feed in small steps, to be killed between and within them."""
    feeder = Feeder(directory, interval_s=0.005, batch_rows=100)
    feeder.start()
    os.write(1, b"ready\n")
    threading.Event().wait()


def main(arguments: list[str]) -> None:
    """Run until killed."""
    if arguments[0] == "write":
        write(arguments[1], int(arguments[2]), int(arguments[3]))
    else:
        feed(arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
