"""A gateway's part of the log, in a process of its own: so many ends a second, for some seconds.

Arguments: DIRECTORY RATE SECONDS REPLICAS. Prints what its part took, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.storage.log import LogWriter

__all__ = ["ending", "main"]

TENANTS = 8
RAN_S = 1.5


def ending(number: int, arrived_at_utc_ns: int, replicas: int) -> tuple[Request, RequestTimeline]:
    """A request and its good end, RAN_S after it arrived."""
    request_id = (arrived_at_utc_ns // 1000 << 6) | number % 64
    tenant = f"team-{number % TENANTS}"
    request = Request(
        id=request_id,
        tenant=tenant,
        model="m",
        endpoint="chat",
        stream=False,
        arrived_s=0.0,
        prompt_tokens_estimate=100,
    )
    end = RequestTimeline(
        id=request_id,
        tenant=tenant,
        model="m",
        endpoint="chat",
        stream=False,
        arrived_at_utc_ns=arrived_at_utc_ns,
        outcome="ok",
        status=200,
        replica=f"replica-{number % replicas}",
        attempts=1,
        dispatched_s=0.0004,
        first_token_s=0.03,
        last_token_s=RAN_S - 0.01,
        finished_s=RAN_S,
        prompt_tokens=100 + number % 900,
        cached_tokens=64,
        output_tokens=128,
        gpu_ns=4_000_000,
        key="key-1",
    )
    return request, end


def main(arguments: list[str]) -> None:
    """Write at the rate until the time is over."""
    directory, rate, seconds, replicas = arguments[0], *map(int, arguments[1:])
    writer = LogWriter(directory, 0)
    rows, began_s, began_cpu_s = 0, time.monotonic(), time.process_time()
    while (passed_s := time.monotonic() - began_s) < seconds:
        records: list[bytes] = []
        while rows < passed_s * rate:
            utc_ns = time.time_ns() - int(RAN_S * 1e9) + len(records) * 1000
            request, end = ending(rows, utc_ns, replicas)
            records += [writer.encode_intent(request, utc_ns), writer.encode_finish(end)]
            rows += 1
        writer.write(records)
        time.sleep(0.01)
    writer.close()
    figures = {
        "cpu_s": time.process_time() - began_cpu_s,
        "wall_s": passed_s,
        "rows": rows,
        "dropped": writer.dropped_total,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
