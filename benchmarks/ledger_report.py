"""The books' cost: a month's report out of ten million requests, and GPU time booked as it comes.

`make bench-ledger-report`, or `python -m benchmarks.ledger_report [--json] [--rows N] ...`.
Makes a ledger of a month, and times `mileage cost` on it in a fresh process; books requests whose
windows are all over, as fast as it goes; then lets a writer record 10,000 requests a second while
a feeder stores them and shares GPU time out; at last the same beside a whole gateway at full load.
Exit code: 0 all bars met, 1 one missed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.support.ledger_beside import beside
from benchmarks.support.ledger_month import DAYS, MONTH_UTC_S, make_month
from benchmarks.support.ledger_writer import ending
from benchmarks.support.machine import describe
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.replica_time import ReplicaTime
from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter
from mileage.storage.usage_reader import UsageReader

__all__ = ["main"]

RATE = 10_000
REPLICAS = 16
BOOKED_RATE = 2000
"""Requests a second of the log, where the speed of booking alone is measured."""
SHARE_MIN = 0.98
"""Of RATE that the writer must have kept up: else the machine was too busy to tell."""
CORE_SHARE_MIN = 0.8
"""Below this the machine was too busy to blame the report for the time it took."""
_NS = 1_000_000_000
BARS = (
    Bar("report_s", 2.0, at_least=False),
    Bar("sustained_rows_per_s", RATE * SHARE_MIN),
    Bar("beside_rows_per_s", RATE),
)


def report(directory: Path, rows: int) -> tuple[dict[str, object], list[str], list[str]]:
    """Make the month, and time its report: through the reader, and as a command."""
    began_s = time.perf_counter()
    make_month(directory, rows)
    made_s = time.perf_counter() - began_s
    until = MONTH_UTC_S + DAYS * 86_400
    began_s = time.perf_counter()
    with closing(UsageReader(directory)) as reader:
        usage = list(reader.usage(MONTH_UTC_S, until))
        capacity = list(reader.capacity(MONTH_UTC_S, until))
    read_s = time.perf_counter() - began_s
    program = "from mileage.cli.main import main; main()"
    command = [sys.executable, "-c", program, "cost", "--ledger", str(directory), "--since"]
    command += ["2025-11-01", "--until", "2025-12-01", "--timezone", "UTC", "--json"]
    cpu_s, began_s = _children_cpu_s(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    report_s, cpu_s = time.perf_counter() - began_s, _children_cpu_s() - cpu_s
    failures = [] if done.returncode == 0 else [f"mileage cost: {done.stderr.strip()}"]
    if not failures:
        document = json.loads(done.stdout)
        total_ns = document["idle_gpu_ns"] + sum(a["gpu_ns"] for a in document["accounts"])
        there_ns = sum(row.capacity_ns for row in capacity)
        if total_ns != document["gpu_ns_total"] or there_ns != document["gpu_ns_total"]:
            failures.append(f"the bill of {document['gpu_ns_total']} ns is not {there_ns} ns")
    began_s = time.perf_counter()
    with closing(UsageReader(directory)) as reader:
        verdict_ = reader.verify()
    failures += verdict_.problems
    figures: dict[str, object] = {
        "rows": rows,
        "made_s": round(made_s, 1),
        "usage_rows": len(usage),
        "read_s": round(read_s, 2),
        "report_s": round(report_s, 2),
        "report_cpu_s": round(cpu_s, 2),
        "verify_s": round(time.perf_counter() - began_s, 1),
    }
    doubts = []
    if cpu_s < CORE_SHARE_MIN * report_s:
        doubts.append(f"the report got {cpu_s / report_s:.0%} of a core")
    return figures, failures, doubts


def _children_cpu_s() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def note_up(feeder: Feeder, since_ns: int, until_ns: int) -> None:
    """All replicas were up between the two times."""
    names = (f"replica-{n}" for n in range(REPLICAS))
    feeder.note_replicas(
        [ReplicaTime(name, since_ns, until_ns, 1.0, "h100-sxm", "up") for name in names]
    )


def book(directory: Path, rows: int) -> tuple[dict[str, object], list[str]]:
    """Feed requests whose windows are over, then share their GPU time out: CPU of each."""
    writer = LogWriter(directory, 0)
    base_ns = MONTH_UTC_S * _NS
    for number in range(rows):
        request, end = ending(number, base_ns + number * _NS // BOOKED_RATE, REPLICAS)
        writer.intent(request, end.arrived_at_utc_ns)
        writer.finish(end)
    writer.close()
    span_ns = rows * _NS // BOOKED_RATE + 60 * _NS
    now_ns = [base_ns]
    feeder = Feeder(directory, attribution=AttributionConfig(), utc_ns=lambda: now_ns[0])
    fed_s = time.process_time()
    while feeder.step():
        pass
    fed_s = time.process_time() - fed_s
    note_up(feeder, base_ns, base_ns + span_ns)
    now_ns[0] = base_ns + span_ns
    booked_s = time.process_time()
    while feeder.step():
        pass
    booked_s = time.process_time() - booked_s
    status = feeder.status()
    feeder.stop()
    with closing(UsageReader(directory)) as reader:
        found = reader.verify()
    failures = list(found.problems)
    if status.attribution_error:
        failures.append(status.attribution_error)
    if found.requests != rows or found.requests_open:
        failures.append(f"{found.requests} of {rows} requests are booked")
    return {
        "feed_cpu_us_per_row": round(fed_s / rows * 1e6, 1),
        "book_cpu_us_per_row": round(booked_s / rows * 1e6, 1),
        "metering_cpu_s_per_1000": round((fed_s + booked_s) / rows * 1e3, 4),
    }, failures


def sustain(directory: Path, seconds: int) -> tuple[dict[str, object], list[str], list[str]]:
    """A writer at RATE and a feeder beside it; how far behind the feeder was at its worst."""
    feeder = Feeder(directory, attribution=AttributionConfig())
    feeder.start()
    command = [sys.executable, "-m", "benchmarks.support.ledger_writer", str(directory)]
    command += [str(RATE), str(seconds), str(REPLICAS)]
    cpu_s, began_s, seen_ns = time.process_time(), time.perf_counter(), time.time_ns()
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lags: list[int] = []
    while writer.poll() is None:
        time.sleep(0.25)
        until_ns = time.time_ns()
        note_up(feeder, seen_ns, until_ns)
        seen_ns = until_ns
        lags.append(feeder.status().lag_bytes)
    wall_s = time.perf_counter() - began_s
    cpu_s = time.process_time() - cpu_s
    output, _ = writer.communicate()
    written = json.loads(output)
    status = feeder.status()
    stored = status.rows_total
    behind_s = (seen_ns - (status.settled_until_utc_ns or seen_ns)) / _NS
    feeder.stop(60.0)
    failures = []
    if status.attribution_error:
        failures.append(status.attribution_error)
    if feeder.status().rows_total != written["rows"] or written["dropped"]:
        failures.append(f"{written} were written, {feeder.status()} is what became of them")
    doubts = []
    if written["rows"] < RATE * seconds * SHARE_MIN:
        doubts.append(f"the writer made {written['rows'] / seconds:.0f} requests a second")
    return (
        {
            "sustained_rows_per_s": round(stored / written["wall_s"]),
            "feeder_core_share": round(cpu_s / wall_s, 3),
            "writer_core_share": round(written["cpu_s"] / wall_s, 3),
            "lag_bytes_max": max(lags),
            "settled_behind_s": round(behind_s, 1),
        },
        failures,
        doubts,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger_report", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--rows", type=int, default=10_000_000, help="requests of the month")
    parser.add_argument("--booked", type=int, default=200_000, help="requests that are booked")
    parser.add_argument("--seconds", type=int, default=120, help="of 10,000 requests each")
    parser.add_argument("--beside", type=float, default=90.0, help="seconds of a whole gateway")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    if not {GATEWAY_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        return output.finish({}, Verdict(NO_VERDICT, ("needs the cores 0 and 1",)))
    with scratch_directory() as directory:
        output.say(f"a month of {arguments.rows:,} requests")
        month, failures, busy = report(directory / "month", arguments.rows)
        output.say(f"{arguments.booked:,} requests, booked")
        booked, more = book(directory / "booked", arguments.booked)
        output.say(f"{arguments.seconds} s of {RATE:,} requests each")
        live, live_failures, late = sustain(directory / "live", arguments.seconds)
        output.say(f"{arguments.beside:g} s of a whole gateway at full load")
        try:
            whole, lost, disturbed = beside(directory, arguments.beside, output)
        except NotReadyError as error:
            return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    found = {**month, **booked, **live, **whole}
    output.table("Figures", ("", "value"), list(found.items()))
    failures += [*more, *live_failures, *lost]
    judged = verdict(found, BARS, failures=failures, doubts=[*busy, *late, *disturbed])
    return output.finish({**found, "machine": describe()}, judged)


if __name__ == "__main__":
    sys.exit(main())
