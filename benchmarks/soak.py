"""A soak: 200,000 mixed requests through one worker; its memory and open files must not grow.

`make bench-soak`, or `python -m benchmarks.soak [--json] [--requests N]`. Exit code: 0 steady,
1 it grew or answered wrongly, 3 no verdict.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.support.engine_upstream import EngineUpstream
from benchmarks.support.machine import describe, pinned, raise_file_limit
from benchmarks.support.memory import MIB, ProcessUse, settled_uses
from benchmarks.support.mileage import MileageStack
from benchmarks.support.mixed import MixedLoad
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.stacks import Upstreams
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE

__all__ = ["main"]

WORKERS = 64
QUIET_S = 4.0
"""Wait before measuring: what is in flight ends, the ledger's database catches up."""
BARS = (
    Bar("rss_growth_mib", 10, at_least=False),
    Bar("fds_growth", 1, at_least=False),
    Bar("half_closed", 1, at_least=False),
)


class Soak:
    """One run: warm-up, measurement, the rest of the requests, measurement."""

    def __init__(self, mileage: MileageStack, engine: EngineUpstream, output: Output) -> None:
        self._mileage, self._engine, self._output = mileage, engine, output
        self._series: list[tuple[int, float]] = []
        self.load = MixedLoad(mileage.chat_port, str(mileage.key), self._note)

    def _uses(self) -> dict[int, ProcessUse]:
        return settled_uses(self._mileage.service, self._engine.port)

    def _note(self, done: int) -> None:
        if done % 10_000 == 0:
            rss = sum(process.memory_info().rss for process in self._mileage.service.tree())
            self._series.append((done, round(rss / MIB, 1)))
            self._output.say(f"{done:,} requests, {rss / MIB:.1f} MiB in all processes")

    def run(self, warm: int, total: int) -> None:
        """Send the requests; `start`, `warmed` and `end` are the uses after each part.

        A first hundred goes ahead of the start, so that what is opened once is open.
        """
        uvloop.run(self.load.run(100, workers=1, seed=0))
        time.sleep(QUIET_S)
        self.start = self._uses()
        uvloop.run(self.load.run(warm - 100, workers=WORKERS, seed=1))
        time.sleep(QUIET_S)
        self.warmed = self._uses()
        began_s = time.monotonic()
        uvloop.run(self.load.run(total - warm, workers=WORKERS, seed=2))
        self.requests_per_s = (total - warm) / (time.monotonic() - began_s)
        time.sleep(QUIET_S)
        self.end = self._uses()

    def figures(self) -> tuple[dict[str, object], list[str]]:
        """Figures, and what went wrong."""
        failures = []
        load, stats = self.load, self._engine.stats()
        served = sum(load.done[kind] for kind in ("whole", "whole_new_connection", "stream"))
        rows = self._mileage.settled_ledger(served + load.done["cancelled"]).rows
        if load.errors:
            failures.append(f"{load.errors} wrong answers, the first: {load.first_error}")
        if self.start.keys() != self.end.keys():
            failures.append(f"processes changed: {sorted(self.start)} to {sorted(self.end)}")
        if stats["aborted"] != load.done["cancelled"]:
            left = load.done["cancelled"]
            failures.append(f"{left} clients left, {stats['aborted']} generations were aborted")
        if rows.get("ok", 0) != served or rows.get("cancelled", 0) != load.done["cancelled"]:
            failures.append(f"rows in the ledger: {rows}, requests: {dict(load.done)}")
        both = [pid for pid in self.warmed if pid in self.end]
        growth = {pid: self.end[pid].rss - self.warmed[pid].rss for pid in both}
        return {
            "rss_growth_mib": round(sum(growth.values()) / MIB, 2),
            "rss_growth_mib_by_process": [round(bytes / MIB, 2) for bytes in growth.values()],
            "pss_growth_mib": round(
                sum(self.end[pid].pss - self.warmed[pid].pss for pid in both) / MIB, 2
            ),
            "rss_mib": round(sum(use.rss for use in self.end.values()) / MIB, 1),
            "rss_mib_by_requests": self._series,
            "fds_growth": _descriptors(self.end) - _descriptors(self.start),
            "fds_new": _new_files(self.start, self.end),
            "half_closed": sum(use.half_closed for use in self.end.values()),
            "requests": load.done.total(),
            "requests_by_kind": dict(load.done),
            "requests_per_s": round(self.requests_per_s, 1),
            "errors": load.errors,
            "aborted_upstream": stats["aborted"],
            "ledger_rows_by_outcome": rows,
            "machine": describe(),
        }, failures


def _descriptors(uses: dict[int, ProcessUse]) -> int:
    return sum(use.sockets + len(use.others) for use in uses.values())


def _new_files(start: dict[int, ProcessUse], end: dict[int, ProcessUse]) -> list[str]:
    """Names of the descriptors, sockets apart, that were not there at the start."""
    before = Counter(name for use in start.values() for name in use.others)
    after = Counter(name for use in end.values() for name in use.others)
    return sorted(Path(name).name for name in (after - before).elements())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--requests", type=int, default=200_000, help="requests in all")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    raise_file_limit(8192)
    try:
        with (
            scratch_directory() as directory,
            pinned(LOAD_CORE),
            EngineUpstream(directory, core=LOAD_CORE) as engine,
            MileageStack(
                Upstreams(engine.port, engine.port), directory / "mileage", core=GATEWAY_CORE
            ) as mileage,
        ):
            soak = Soak(mileage, engine, output)
            soak.run(arguments.requests // 10, arguments.requests)
            figures, failures = soak.figures()
    except NotReadyError as error:
        return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    return output.finish(figures, verdict(figures, BARS, failures=failures))


if __name__ == "__main__":
    sys.exit(main())
