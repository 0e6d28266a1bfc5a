"""Speed of `mileage bench`'s load generator on one core, beside GuideLLM and vllm bench serve.

`make bench-loadgen`, or `python -m benchmarks.loadgen [--json] [--quick]`. Exit code: 0 all bars
met, 1 not, 3 no verdict.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.support.generator_load import (
    LoadFigures,
    StreamFigures,
    closed_load,
    open_load,
    stream_load,
)
from benchmarks.support.machine import core_times, describe, pinned, raise_file_limit
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.rival_generators import RivalError, run_guidellm, run_vllm_bench
from benchmarks.support.timed_upstream import TimedUpstream
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict

__all__ = ["main"]

SERVER_CORE, LOAD_CORE = 0, 1
CONNECTIONS = 32
RATE = 4000.0
STREAMS, STREAM_TOKENS, GAP_MS = 1000, 200, 20.0
SHORT_TOKENS = 2
"""vllm bench serve knows streams only: short ones are what it can do the most of."""
STOLEN_RATIO_MAX = 0.05

BARS = (
    Bar("requests_per_s", 4000),
    Bar("open_requests_per_s", RATE * 0.99),
    Bar("stream_events_per_s", STREAMS * 1000 / GAP_MS * 0.95),
    Bar("stream_lag_p99_s", 0.02, at_least=False),
)


class Runs:
    """All rounds, and what went wrong in them."""

    def __init__(self, paced: TimedUpstream, instant: TimedUpstream, directory: Path) -> None:
        self._paced, self._instant, self._directory = paced, instant, directory
        self.whole: list[LoadFigures] = []
        self.short: list[LoadFigures] = []
        self.scheduled: list[LoadFigures] = []
        self.streams: list[StreamFigures] = []
        self.guidellm: list[float] = []
        self.vllm_bench: list[float] = []
        self.failures: list[str] = []
        self.absent: list[str] = []

    def round(self, *, duration_s: float) -> None:
        """Everything once, the generators in turn."""
        server = self._instant
        self.whole.append(closed_load(server, connections=CONNECTIONS, duration_s=duration_s))
        self._rival(
            self.guidellm,
            lambda: run_guidellm(
                server.url,
                directory=self._directory,
                core=LOAD_CORE,
                connections=CONNECTIONS,
                duration_s=duration_s,
            ),
        )
        self.short.append(
            closed_load(server, connections=CONNECTIONS, duration_s=duration_s, tokens=SHORT_TOKENS)
        )
        self._rival(
            self.vllm_bench,
            lambda: run_vllm_bench(
                server.url,
                directory=self._directory,
                core=LOAD_CORE,
                connections=CONNECTIONS,
                tokens=SHORT_TOKENS,
                requests=int(700 * duration_s),
            ),
        )
        self.scheduled.append(open_load(server, rate=RATE, duration_s=duration_s))
        self.streams.append(
            stream_load(
                self._paced, streams=STREAMS, tokens=STREAM_TOKENS, duration_s=duration_s + 2
            )
        )
        parts = (self.whole[-1], self.short[-1], self.scheduled[-1])
        told = [*(part.failures for part in parts), self.streams[-1].failures]
        self.failures += [failure for failure in told if failure is not None]

    def _rival(self, rates: list[float], run: Callable[[], float]) -> None:
        try:
            rates.append(run())
        except RivalError as error:
            if str(error) not in self.absent:
                self.absent.append(str(error))


def figures_of(runs: Runs) -> dict[str, object]:
    """Medians over the rounds."""
    rate = median(part.requests_per_s for part in runs.whole)
    short = median(part.requests_per_s for part in runs.short)
    guidellm = median(runs.guidellm) if runs.guidellm else None
    vllm_bench = median(runs.vllm_bench) if runs.vllm_bench else None
    return {
        "requests_per_s": round(rate),
        "requests_per_s_rounds": [round(part.requests_per_s) for part in runs.whole],
        "cpu_us_per_request": round(median(p.cpu_us_per_request for p in runs.whole), 1),
        "guidellm_requests_per_s": None if guidellm is None else round(guidellm, 1),
        "ratio_guidellm": None if guidellm is None else round(rate / guidellm, 1),
        "short_streams_per_s": round(short),
        "vllm_bench_short_streams_per_s": None if vllm_bench is None else round(vllm_bench, 1),
        "ratio_vllm_bench": None if vllm_bench is None else round(short / vllm_bench, 1),
        "open_requests_per_s": round(median(p.requests_per_s for p in runs.scheduled), 1),
        "open_lag_p99_s": round(median(p.lag_p99_s for p in runs.scheduled), 6),
        "streams": STREAMS,
        "stream_events_per_s": round(median(p.events_per_s for p in runs.streams)),
        "stream_lag_p50_s": round(median(p.delay_p50_s for p in runs.streams), 6),
        "stream_lag_p99_s": round(median(p.delay_p99_s for p in runs.streams), 6),
        "stream_lag_max_s": round(max(p.delay_max_s for p in runs.streams), 6),
        "stream_loop_lag_p99_s": round(median(p.loop_lag_p99_s for p in runs.streams), 6),
        "stream_cpu_ratio": round(median(p.cpu_ratio for p in runs.streams), 3),
        "stream_cpu_us_per_event": round(
            median(p.cpu_ratio / max(1.0, p.events_per_s) for p in runs.streams) * 1e6, 2
        ),
        "not_compared": runs.absent,
        "machine": describe(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loadgen", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="one short round")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    raise_file_limit(16_384)
    rounds, duration_s = (1, 2.0) if arguments.quick else (3, 5.0)
    before, start_s = core_times(), time.monotonic()
    try:
        with (
            scratch_directory() as directory,
            pinned(LOAD_CORE),
            TimedUpstream(directory, core=SERVER_CORE, gap_ms=GAP_MS) as paced,
            TimedUpstream(directory, core=SERVER_CORE, gap_ms=0.0) as instant,
        ):
            runs = Runs(paced, instant, directory)
            for number in range(rounds):
                output.say(f"round {number + 1} of {rounds}")
                runs.round(duration_s=duration_s)
    except NotReadyError as error:
        return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    stolen_s = sum(t.stolen_s - before[core].stolen_s for core, t in core_times().items())
    stolen_ratio = stolen_s / (time.monotonic() - start_s)
    doubts = []
    if stolen_ratio > STOLEN_RATIO_MAX:
        doubts.append(f"the hypervisor took {stolen_ratio:.0%} of a core")
    figures = figures_of(runs)
    rows = [(name, value) for name, value in figures.items() if not isinstance(value, (dict, list))]
    output.table("Load generator on one core", ("figure", "value"), rows)
    for reason in runs.absent:
        output.say(f"not compared: {reason}")
    return output.finish(figures, verdict(figures, BARS, failures=runs.failures, doubts=doubts))


if __name__ == "__main__":
    sys.exit(main())
