"""The ledger's cost: what recording a request takes a worker, and storing it takes the feeder.

`make bench-ledger`, or `python -m benchmarks.ledger [--json] [--requests N]`. Writes the intents
and ends of N requests to a log, first answers in one piece, then streams of 128 events, and feeds
each log into the database, on one core. Exit code: 0 all bars met, 1 one missed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.machine import describe, pinned
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.verdict import Bar, verdict
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter

__all__ = ["main"]

CORE = 0
TENANTS = 8
STREAM_EVENTS = 128
CHUNK = 10_000
"""Requests made at a time, outside of what is measured."""
TURN = 16
"""Requests whose records one turn of an event loop writes together, where it groups them."""
CORE_SHARE_MIN = 0.5
"""Below this the machine was too busy to blame the program for a low rate."""
BASE_US = 1_764_428_000_000_000
BARS = (
    Bar("rows_per_s", 10_000),
    Bar("stream_rows_per_s", 10_000),
    Bar("writer_us_per_request", 8, at_least=False),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of writer and feeder, elapsed time of the feeder, and bytes on disk, per request."""

    writer_us: float
    grouped_us: float
    feeder_cpu_us: float
    rows_per_s: float
    core_share: float
    """Of the core's time that the feeder got: the rest went to others, or to the disk."""
    log_bytes: float
    database_bytes: float


def request_and_end(number: int, *, stream: bool) -> tuple[Request, RequestTimeline]:
    """One request as it arrives, and its good end."""
    request_id, tenant = (BASE_US + number) << 6, f"team-{number % TENANTS}"
    request = Request(
        id=request_id,
        tenant=tenant,
        model="smollm2",
        endpoint="chat",
        stream=stream,
        arrived_s=number * 1e-6,
        prompt_tokens_estimate=100,
    )
    jitter_s = number * 1e-9  # so that figures have all their digits, as real ones do
    end = RequestTimeline(
        id=request_id,
        tenant=tenant,
        model="smollm2",
        endpoint="chat",
        stream=stream,
        arrived_at_utc_ns=(BASE_US + number) * 1000,
        outcome="ok",
        status=200,
        replica="127.0.0.1:8000",
        attempts=1,
        dispatched_s=0.0001 + jitter_s,
        first_token_s=0.03 + jitter_s,
        last_token_s=1.4 + jitter_s,
        finished_s=1.401 + jitter_s,
        prompt_tokens=100 + number % 900,
        cached_tokens=64,
        output_tokens=STREAM_EVENTS,
    )
    if not stream:
        return request, end
    times = (time for event in range(STREAM_EVENTS) for time in (30_000 + 10_791 * event, 1))
    details = {
        "output_tokens_counted": STREAM_EVENTS,
        "itl_mean_s": 0.010791 + jitter_s,
        "itl_p99_s": 0.0143 + jitter_s,
        "itl_max_s": 0.0155 + jitter_s,
        "token_times": tuple(times),
    }
    fields = {field: getattr(end, field) for field in end.__struct_fields__}
    return request, RequestTimeline(**{**fields, **details})


def write(writer: LogWriter, first: int, count: int, *, stream: bool, grouped: bool) -> float:
    """Record `count` requests; gives the CPU seconds that took."""
    cpu_s = 0.0
    for start in range(first, first + count, CHUNK):
        numbers = range(start, min(start + CHUNK, first + count))
        requests = [request_and_end(number, stream=stream) for number in numbers]
        started_s = time.process_time()
        if grouped:
            intent, finish = writer.encode_intent, writer.encode_finish
            for at in range(0, len(requests), TURN):
                turn = requests[at : at + TURN]
                records = [intent(request, end.arrived_at_utc_ns) for request, end in turn]
                records += [finish(end) for _, end in turn]
                writer.write(records)
        else:
            for request, end in requests:
                writer.intent(request, end.arrived_at_utc_ns)
                writer.finish(end)
        cpu_s += time.process_time() - started_s
    return cpu_s


def measure(directory: Path, count: int, *, stream: bool) -> tuple[Cost, list[str]]:
    """Write and feed `count` requests, half of them grouped; gives the cost, and what was wrong."""
    writer = LogWriter(directory, 0)
    half = count // 2
    single_s = write(writer, 0, half, stream=stream, grouped=False)
    grouped_s = write(writer, half, half, stream=stream, grouped=True)
    dropped = writer.dropped_total
    writer.close()
    log_bytes = sum(path.stat().st_size for path in (directory / "log").iterdir())
    feeder = Feeder(directory)
    cpu_s, started_s = time.process_time(), time.perf_counter()
    while feeder.step():
        pass
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    status = feeder.status()
    feeder.stop()
    failures = []
    if dropped or (status.rows_total, status.lost_total, status.damaged_total) != (2 * half, 0, 0):
        failures.append(f"{2 * half} requests written, {dropped} dropped, then {status}")
    cost = Cost(
        writer_us=single_s / half * 1e6,
        grouped_us=grouped_s / half * 1e6,
        feeder_cpu_us=cpu_s / (2 * half) * 1e6,
        rows_per_s=2 * half / wall_s,
        core_share=cpu_s / wall_s,
        log_bytes=log_bytes / (2 * half),
        database_bytes=(directory / "ledger.sqlite").stat().st_size / (2 * half),
    )
    return cost, failures


def figures(prefix: str, cost: Cost) -> dict[str, float]:
    """The figures of one kind of request by name."""
    return {
        f"{prefix}rows_per_s": round(cost.rows_per_s),
        f"{prefix}writer_us_per_request": round(cost.writer_us, 2),
        f"{prefix}writer_grouped_us_per_request": round(cost.grouped_us, 2),
        f"{prefix}feeder_cpu_us_per_row": round(cost.feeder_cpu_us, 2),
        f"{prefix}log_bytes_per_request": round(cost.log_bytes),
        f"{prefix}database_bytes_per_row": round(cost.database_bytes),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--requests", type=int, default=200_000, help="requests of each kind")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    with scratch_directory() as directory, pinned(CORE):
        output.say(f"{arguments.requests:,} answers in one piece")
        plain, failures = measure(directory / "plain", arguments.requests, stream=False)
        output.say(f"{arguments.requests // 4:,} streams of {STREAM_EVENTS} events")
        streams, more = measure(directory / "streams", arguments.requests // 4, stream=True)
    rows = [
        (name, cost.writer_us, cost.grouped_us, cost.feeder_cpu_us, cost.rows_per_s)
        for name, cost in (("answers", plain), ("streams", streams))
    ]
    columns = ("", "write us", f"in groups of {TURN}", "feed us (CPU)", "rows/s")
    output.table("Per request", columns, rows)
    found = {**figures("", plain), **figures("stream_", streams)}
    shares = (plain.core_share, streams.core_share)
    doubts = [f"the feeder got {s:.0%} of the core" for s in shares if s < CORE_SHARE_MIN]
    judged = verdict(found, BARS, failures=[*failures, *more], doubts=doubts)
    return output.finish({**found, "machine": describe()}, judged)


if __name__ == "__main__":
    sys.exit(main())
