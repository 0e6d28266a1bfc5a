"""A/B runs over the whole path, against a server of drawn service times: are the verdicts true?

`make bench-ab`, or `python -m benchmarks.ab [--json] [--quick]`. Exit code: 0 no more false
verdicts than chance allows and true changes found, 1 not, 3 no verdict.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import comb, exp, log, sqrt
from pathlib import Path
from random import Random
from statistics import median
from typing import Final, get_args

from benchmarks.support.ab_runs import METRIC, PLAN, AbOutcome, AbTask, Kind, run_one
from benchmarks.support.machine import core_times, describe, raise_file_limit
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.processes import NotReadyError, Service, exit_on_signals, free_port
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from mileage.measure.distributions import binomial_p
from mileage.measure.power import block_sd, plan_power

__all__ = ["allowed", "main", "tasks_of"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
LARGE, SMALL = 1.2, 1.05
SURE = 0.99
"""How sure a count has to be chance no more, before it counts against us."""
AT_ONCE = 10
"""Runs beside each other: each of them hardly computes."""
FOUND = ("better", "worse", "mixed")
STOLEN_RATIO_MAX = 0.05


class DrawnServer(Service):
    """The server of drawn service times, as a process."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        argv = [sys.executable, "-m", "benchmarks.support.ab_server", "--port", str(port)]
        super().__init__("drawn server", argv, core=0, log=directory / "server.log")

    def __enter__(self) -> DrawnServer:
        self.wait_ready(f"{self.url}/v1/models")
        return self


def allowed(runs: int, share: float) -> int:
    """The most of `runs` that a chance of `share` each stays at, in 99 of 100 cases."""
    total = 0.0
    for count in range(runs + 1):
        total += comb(runs, count) * share**count * (1.0 - share) ** (runs - count)
        if total >= SURE:
            return count
    return runs


def tasks_of(*, equal: int, large: int, small: int) -> list[AbTask]:
    """So many runs of equal arms, and of the two changes, of all kinds in turn; the small change
    by interleaved runs alone, whose power is one figure."""
    scales = [1.0] * equal + [LARGE] * large
    tasks = [
        AbTask(scale=scale, kind=KINDS[seed % len(KINDS)], seed=seed)
        for seed, scale in enumerate(scales)
    ]
    return tasks + [
        AbTask(scale=SMALL, kind="interleaved", seed=len(tasks) + number) for number in range(small)
    ]


def run_all(tasks: Sequence[AbTask], url: str, output: Output) -> list[AbOutcome]:
    """Run them, some at once, in an order that is drawn, so that no kind has a time of its own."""
    drawn = Random(5).sample(tasks, len(tasks))
    outcomes = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_ONCE, mp_context=context) as pool:
        waited = [pool.submit(run_one, task, url) for task in drawn]
        try:
            for number, future in enumerate(as_completed(waited), start=1):
                outcome = future.result()
                outcomes.append(outcome)
                task = outcome.task
                output.say(
                    f"{number:3} of {len(tasks)}: x{task.scale:g}, {task.kind}, {outcome.pairs}"
                    f" pairs: {outcome.verdict}"
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return outcomes


def figures_of(outcomes: Sequence[AbOutcome]) -> dict[str, object]:
    """What all the runs say together."""
    told = [outcome for outcome in outcomes if outcome.verdict != "invalid"]
    equal = [o for o in told if o.task.scale == 1.0]
    large = [o for o in told if o.task.scale == LARGE]
    small = [o for o in told if o.task.scale == SMALL]
    false = [o for o in equal if o.verdict in FOUND]
    power = stated_power([o for o in told if o.task.kind == "interleaved"])
    found = sum(o.verdict == "worse" for o in small)
    covered = [
        o.ci95[0] <= o.task.scale <= o.ci95[1] for o in (*equal, *small) if o.ci95 is not None
    ]
    return {
        "runs": len(outcomes),
        "runs_invalid": len(outcomes) - len(told),
        "invalid_reasons": dict(Counter(o.text for o in outcomes if o.verdict == "invalid")),
        "aa_runs": len(equal),
        "aa_false": len(false),
        "aa_false_allowed": allowed(len(equal), PLAN.alpha),
        "aa_false_over": len(false) - allowed(len(equal), PLAN.alpha),
        "aa_false_by_kind": dict(Counter(o.task.kind for o in false)),
        "large_runs": len(large),
        "large_found_ratio": _share(sum(o.verdict == "worse" for o in large), len(large)),
        "large_ratio_mean": _typical(large),
        "large_pairs_median": median(o.pairs for o in large) if large else None,
        "small_runs": len(small),
        "small_found_ratio": _share(found, len(small)),
        "small_power_stated": power,
        "small_power_p_value": (
            binomial_p(found, len(small), power) if small and power is not None else None
        ),
        "small_ratio_mean": _typical(small),
        "small_wrong_way": sum(o.verdict in ("better", "mixed") for o in (*small, *large)),
        "detectable_ratio_median": _detectable([*equal, *small]),
        "interval_covers_ratio": _share(sum(covered), len(covered)),
        "metric": METRIC,
        "machine": describe(),
    }


def stated_power(outcomes: Sequence[AbOutcome]) -> float | None:
    """The chance to see the small change by the plan, from how much pairs differ in the runs."""
    squares = weight = 0.0
    for outcome in outcomes:
        if outcome.ci95_alone is not None:
            sd = block_sd(outcome.ci95_alone, outcome.pairs)
            squares += sd * sd * (outcome.pairs - 1)
            weight += outcome.pairs - 1
    if not weight:
        return None
    return plan_power(PLAN, SMALL, sqrt(squares / weight), random=Random(3)).power


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


def _typical(outcomes: Sequence[AbOutcome]) -> float | None:
    logs = [log(o.ratio) for o in outcomes if o.ratio is not None]
    return round(exp(sum(logs) / len(logs)), 4) if logs else None


def _detectable(outcomes: Sequence[AbOutcome]) -> float | None:
    found = [o.detectable_ratio for o in outcomes if o.detectable_ratio is not None]
    return round(median(found), 4) if found else None


BARS: Final = (
    Bar("aa_false_over", 1, at_least=False),
    Bar("large_found_ratio", 0.9),
    Bar("small_power_p_value", 1.0 - SURE, comparative=True),
    Bar("small_wrong_way", 1, at_least=False),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ab", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="a third of the runs")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    raise_file_limit(16_384)
    sizes = (12, 3, 8) if arguments.quick else (30, 9, 24)
    tasks = tasks_of(equal=sizes[0], large=sizes[1], small=sizes[2])
    before, start_s = core_times(), time.monotonic()
    try:
        with scratch_directory() as directory, DrawnServer(directory) as server:
            outcomes = run_all(tasks, server.url, output)
    except NotReadyError as error:
        return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    elapsed_s = time.monotonic() - start_s
    figures = {**figures_of(outcomes), "elapsed_s": round(elapsed_s, 1)}
    stolen_s = sum(t.stolen_s - before[core].stolen_s for core, t in core_times().items())
    doubts = []
    if stolen_s > STOLEN_RATIO_MAX * elapsed_s:
        doubts.append(f"the hypervisor took {stolen_s / elapsed_s:.0%} of a core")
    invalid = []
    if (count := sum(o.verdict == "invalid" for o in outcomes)) > len(outcomes) / 4:
        invalid.append(f"{count} of {len(outcomes)} runs had no verdict: the machine was disturbed")
    failures = sorted({f"a run broke off: {o.error}" for o in outcomes if o.error is not None})
    shown = [(key, value) for key, value in figures.items() if key != "machine"]
    output.table("A/B over the whole path", ("figure", "value"), shown)
    return output.finish(
        figures, verdict(figures, BARS, failures=failures, invalid=invalid, doubts=doubts)
    )


if __name__ == "__main__":
    sys.exit(main())
