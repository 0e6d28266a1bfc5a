"""Thousands of open streams on one worker process at once, each checked event by event.

`make bench-streams`, or `python -m benchmarks.streams [--json] [--streams N]`. Exit code: 0 all
complete and correct, 1 not, 3 no verdict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.support.closed_loop import run_closed_loop
from benchmarks.support.engine_upstream import EngineUpstream
from benchmarks.support.judges import Judge, StampedEvents
from benchmarks.support.machine import describe, pinned, raise_file_limit
from benchmarks.support.memory import MIB, Sampler
from benchmarks.support.mileage import MileageStack
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.payloads import STREAM_MODEL, chat_request, http_request
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.stacks import Upstreams
from benchmarks.support.statistics import quantile
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE, Watch, disturbances

__all__ = ["main"]

EVENTS = 25
INTERVAL_MS = 1000
RAMP_S = 10.0


def measure(streams: int, output: Output) -> tuple[dict[str, object], list[str], list[str]]:
    """Figures, what went wrong, and what disturbed the run."""
    delays_s: list[float] = []

    def judge() -> Judge:
        return StampedEvents(
            EVENTS, lambda _number, delay_ns, _now: delays_s.append(delay_ns / 1e9)
        )

    with (
        scratch_directory() as directory,
        pinned(LOAD_CORE),
        EngineUpstream(directory, core=LOAD_CORE) as engine,
        MileageStack(
            Upstreams(engine.port, engine.port),
            directory / "mileage",
            core=GATEWAY_CORE,
            server={"connections_max": streams + 100},
        ) as mileage,
    ):
        orders = f"events={EVENTS} interval_ms={INTERVAL_MS}"
        body = chat_request(STREAM_MODEL, stream=True, user=orders)
        idle_rss = sum(p.memory_info().rss for p in mileage.service.tree())
        watch = Watch(mileage)
        output.say(f"{streams} streams, {EVENTS} events each, one a second; takes about 40 s")
        with Sampler(mileage.service) as sampler:
            result = run_closed_loop(
                mileage.stream_port,
                http_request(body, key=mileage.key),
                judge,
                connections=streams,
                window_s=RAMP_S,
                ramp_s=RAMP_S,
                drain_s=90.0,
            )
        use = watch.read()
        stats = engine.stats()
        rows = mileage.settled_ledger(result.sent).rows
    delays_s.sort()
    failures = []
    if result.errors:
        failures.append(f"{result.errors} streams went wrong, the first: {result.first_error}")
    if rows.get("ok") != result.sent:
        failures.append(f"the ledger has {rows} for {result.sent} streams")
    figures: dict[str, object] = {
        "streams_open_max": stats["open_max"],
        "streams_complete": result.completed,
        "events": len(delays_s),
        "ttft_p50_s": round(quantile(result.first_s, 0.5), 4) if result.first_s else None,
        "ttft_p99_s": round(quantile(result.first_s, 0.99), 4) if result.first_s else None,
        "event_delay_p50_s": round(quantile(delays_s, 0.5), 4) if delays_s else None,
        "event_delay_p99_s": round(quantile(delays_s, 0.99), 4) if delays_s else None,
        "memory_kib_per_stream": round((max(sampler.rss) - idle_rss) / streams / 1024, 1),
        "rss_max_mib": round(max(sampler.rss) / MIB, 1),
        "gateway_core_ratio": round(use.stack_ratio, 3),
        "load_core_ratio": round(use.load_core_ratio, 3),
        "ledger_rows": sum(rows.values()),
        "errors": result.errors,
        "machine": describe(),
    }
    return figures, failures, disturbances([use])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--streams", type=int, default=5000, help="streams open at once")
    arguments = parser.parse_args(argv)
    streams: int = arguments.streams
    output = Output(quiet=arguments.json)
    exit_on_signals()
    if raise_file_limit(streams * 2 + 1000) < streams * 2 + 1000:
        reason = f"needs {streams * 2 + 1000} open files per process: raise ulimit -n"
        return output.finish({}, Verdict(NO_VERDICT, (reason,)))
    try:
        figures, failures, doubts = measure(streams, output)
    except NotReadyError as error:
        return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    bars = (
        Bar("streams_open_max", streams),
        Bar("streams_complete", streams),
        Bar("ttft_p99_s", 1.0, at_least=False),
    )
    output.table(
        "Open streams", ("figure", "value"), [(k, figures[k]) for k in figures if k != "machine"]
    )
    return output.finish(figures, verdict(figures, bars, failures=failures, doubts=doubts))


if __name__ == "__main__":
    sys.exit(main())
