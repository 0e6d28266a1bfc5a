"""Accuracy of `mileage bench`'s load generator, against a server of known delays.

`make bench-accuracy`, or `python -m benchmarks.accuracy [--json] [--quick]`. Exit code: 0 every
quantile within a millisecond of the truth and a stall seen in full, 1 not, 3 no verdict.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

import uvloop

from benchmarks.support.known_delays import (
    QUANTILES,
    expected_through_stall,
    quantiles,
    stalled_plan,
    streamed_plan,
    true_latencies,
    whole_plan,
)
from benchmarks.support.machine import core_times, describe, pinned, raise_file_limit
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.timed_upstream import TimedUpstream
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from mileage.core.slo import Slo
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run import LoadRun, run_load
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from mileage.measure.run_figures import RunFigures, run_figures

__all__ = ["main"]

SERVER_CORE, LOAD_CORE = 0, 1
RATE = 500.0
STALL_S, STALL_AT_S, DELAY_S = 2.0, 4.0, 0.02
FOREIGN_RATIO_MAX = 0.02
"""Of the two cores, by others, above which single milliseconds cannot be told apart."""

BARS = (
    Bar("worst_error_ms", 1.0, at_least=False),
    Bar("stall_max_s", STALL_S),
    Bar("stall_worst_error_ms", 100.0, at_least=False),
)

Errors = dict[tuple[str, str, str], float]
"""Milliseconds above the truth, by kind of call, figure and quantile."""


class Accuracy:
    """Runs against one server; collects what went wrong, and how far off the figures were."""

    def __init__(self, server: TimedUpstream) -> None:
        self._server = server
        self.rounds: list[Errors] = []
        self.failures: list[str] = []
        self.lags_s: list[float] = []
        self.limits: list[str] = []
        """Why the generator was the limit, in each round in which it was."""

    def round(self, seed: int, duration_s: float) -> Errors:
        """One round of whole answers and one of streams."""
        errors: Errors = {}
        for stream in (False, True):
            plan = (streamed_plan if stream else whole_plan)(RATE, duration_s, seed=seed)
            run = self._run(plan)
            if run.generator.reason is not None:
                self.limits.append(run.generator.reason)
            figures = self._figures(run, duration_s)
            truths = self._server.truth().requests
            seen = [truths[r.request_id] for r in run.records if r.request_id in truths]
            if len(seen) != len(plan):
                self.failures.append(f"the server knows {len(seen)} of {len(plan)} requests")
            for figure, values in true_latencies(seen, stream=stream).items():
                truth, spread = quantiles(values), getattr(figures, figure)
                for name in QUANTILES:
                    error_s = getattr(spread, name) - truth[name]
                    errors["stream" if stream else "whole", figure, name] = error_s * 1000
        self.rounds.append(errors)
        return errors

    def stall(self, duration_s: float) -> dict[str, object]:
        """A server that does nothing for two seconds, seen and expected."""
        plan = stalled_plan(
            RATE, duration_s, delay_s=DELAY_S, stall_at_s=STALL_AT_S, stall_s=STALL_S
        )
        run = self._run(plan)
        figures = self._figures(run, duration_s)
        truth = self._server.truth()
        expected = quantiles(
            expected_through_stall(run.records, truth, delay_s=DELAY_S, zero_s=run.zero_monotonic_s)
        )
        seen = {name: getattr(figures.e2e_s, name) for name in QUANTILES}
        if run.generator.limited and not self.limits:
            self.failures.append(f"a stall made the generator look busy: {run.generator.reason}")
        return {
            "stall_max_s": round(seen["max"], 4),
            "stall_worst_error_ms": round(
                max(abs(seen[name] - expected[name]) for name in QUANTILES) * 1000, 3
            ),
            "stall_e2e_s": {name: round(value, 4) for name, value in seen.items()},
            "stall_expected_s": {name: round(value, 4) for name, value in expected.items()},
        }

    def _run(self, plan: Sequence[PlannedCall]) -> LoadRun:
        run = uvloop.run(run_load(plan, [Target(url=self._server.url)], RunOptions(drain_s=20.0)))
        bad = [record for record in run.records if record.outcome != "ok"]
        if bad or len(run.records) != len(plan):
            self.failures.append(
                f"{len(bad)} of {len(plan)} calls failed, {len(run.records)} recorded, the first: "
                f"{bad[0].outcome if bad else None} {bad[0].error if bad else None}"
            )
        self.lags_s.append(run.generator.lag_p99_s or 0.0)
        return run

    def _figures(self, run: LoadRun, duration_s: float) -> RunFigures:
        return run_figures(run.records, start_s=0.0, end_s=duration_s, slo=Slo())


def typical(rounds: Sequence[Errors]) -> Errors:
    """Each error's median over the rounds, by its size."""
    return {key: median(abs(errors[key]) for errors in rounds) for key in rounds[0]}


def measure(
    output: Output, *, rounds: int, duration_s: float
) -> tuple[dict[str, object], Accuracy]:
    """Figures, and what they came from."""
    with (
        scratch_directory() as directory,
        pinned(LOAD_CORE),
        TimedUpstream(directory, core=SERVER_CORE) as server,
    ):
        accuracy = Accuracy(server)
        for number in range(rounds):
            errors = accuracy.round(number, duration_s)
            worst = max(errors, key=lambda key: abs(errors[key]))
            output.say(
                f"round {number + 1} of {rounds}: worst {' '.join(worst)}: {errors[worst]:+.3f} ms"
            )
        stall = accuracy.stall(STALL_AT_S + STALL_S + 6.0)
    errors = typical(accuracy.rounds)
    worst = max(errors, key=lambda key: errors[key])
    figures: dict[str, object] = {
        "worst_error_ms": round(errors[worst], 4),
        "worst_error_of": " ".join(worst),
        "worst_error_any_round_ms": round(
            max(abs(error) for one in accuracy.rounds for error in one.values()), 4
        ),
        "errors_ms": {
            f"{kind}_{figure}": {name: round(errors[kind, figure, name], 4) for name in QUANTILES}
            for kind, figure in dict.fromkeys(key[:2] for key in errors)
        },
        **stall,
        "lag_p99_ms": round(max(accuracy.lags_s) * 1000, 4),
        "requests_per_s": RATE,
        "rounds": rounds,
        "machine": describe(),
    }
    return figures, accuracy


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="one short round")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    raise_file_limit(16_384)
    before, start_s = core_times(), time.monotonic()
    rounds, duration_s = (1, 4.0) if arguments.quick else (5, 8.0)
    try:
        figures, accuracy = measure(output, rounds=rounds, duration_s=duration_s)
    except NotReadyError as error:
        return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    stolen = sum(t.stolen_s - before[core].stolen_s for core, t in core_times().items())
    stolen_ratio = stolen / (time.monotonic() - start_s)
    doubts = [f"the generator was disturbed: {reason}" for reason in accuracy.limits[:1]]
    if stolen_ratio > FOREIGN_RATIO_MAX:
        doubts.append(f"the hypervisor took {stolen_ratio:.0%} of a core")
    table(output, figures)
    return output.finish(figures, verdict(figures, BARS, failures=accuracy.failures, doubts=doubts))


def table(output: Output, figures: Mapping[str, object]) -> None:
    """Show the errors by figure, and the stall."""
    errors = figures["errors_ms"]
    assert isinstance(errors, dict)
    rows: list[list[object]] = [[name, *row.values()] for name, row in errors.items()]
    output.table("Error in ms, median over the rounds", ["figure", *QUANTILES], rows)
    seen, expected = figures["stall_e2e_s"], figures["stall_expected_s"]
    assert isinstance(seen, dict)
    assert isinstance(expected, dict)
    rows = [["seen", *seen.values()], ["expected", *expected.values()]]
    output.table("E2E in s with a stall of 2 s", ["", *QUANTILES], rows)


if __name__ == "__main__":
    sys.exit(main())
