"""A fitted engine: learned from what a gateway recorded, it predicts another run of the real one.

`make bench-fitted`, or `python -m benchmarks.fitted [--json] [--quick]`. The embedded engine serves
three minutes of varied load, `mileage simulate fit` learns from the ledger, and `mileage simulate`
is given the arrivals and lengths of a fresh run of three minutes, with other lengths and in bursts.
Exit code: 0 all bars met, 1 one missed or a wrong answer, 3 no verdict.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.calls import Call
from benchmarks.support.fitted_runs import FreshRun, fresh_run, learning_run, run_mileage
from benchmarks.support.foreign import ForeignWatch
from benchmarks.support.machine import describe
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE
from mileage.measure.quantiles import quantile

__all__ = ["main"]

SECONDS, QUICK_SECONDS = 180.0, 24.0
LAG_MAX_S = 0.025
BARS = tuple(
    Bar(f"{name}_error_ratio", 0.15, at_least=False) for name in ("ttft", "itl", "itl_mean")
)
KINDS = {"ttft": "ttft_s", "itl": "itl_p99_s", "itl_mean": "itl_mean_s"}
"""Figures by name, with the attribute of a Call; the simulation calls an own p99 `itl_s`."""
QUANTILES = {"p50": 0.5, "p95": 0.95}


def compared(calls: Sequence[Call], simulated: dict[str, Any]) -> dict[str, float | None]:
    """Measured and predicted figures, and the error of the medians: |predicted / measured - 1|."""
    found: dict[str, float | None] = {}
    for name, attribute in KINDS.items():
        values = [v for call in calls if (v := getattr(call, attribute)) is not None]
        for label, q in QUANTILES.items():
            measured = quantile(values, q)
            predicted = (simulated[f"{name}_s"] or {}).get(label)
            suffix = "" if label == "p50" else f"_{label}"
            found[f"{name}{suffix}_measured_s"] = _rounded(measured)
            found[f"{name}{suffix}_predicted_s"] = _rounded(predicted)
            if measured and predicted:
                error = abs(predicted / measured - 1.0)
                found[f"{name}{suffix}_error_ratio"] = round(error, 4)
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def predicted(directory: Path, learnt: Path, fresh: FreshRun) -> tuple[dict[str, Any], ...]:
    """What `simulate fit` says of the first run, and `simulate` of the second."""
    file = str(directory / "fitted.json")
    ledger, journal = str(learnt / "ledger"), str(learnt / "journal")
    fitted = run_mileage("simulate", "fit", "--ledger", ledger, "--journal", journal, "--out", file)
    second = directory / "fresh"
    simulated = run_mileage(
        "simulate",
        *("--engine", file, "--trace", str(second / "ledger")),
        *("--window", f"{fresh.begin_s:.3f}s:", "--config", str(second / "mileage.toml")),
    )
    return fitted, simulated


def measure(directory: Path, output: Output, *, seconds: float) -> tuple[dict[str, Any], Verdict]:
    """Both runs, the fit and the simulation; figures and verdict."""
    watch = ForeignWatch()
    learnt = learning_run(directory / "learnt", output, seconds=seconds, seed=11)
    fresh = fresh_run(directory / "fresh", output, seconds=seconds, seed=71)
    doubts = watch.doubts("both runs")
    fitted, simulated = predicted(directory, directory / "learnt", fresh)
    failures = []
    for name, calls in (("learning", learnt), ("fresh run", fresh.calls)):
        bad = [call for call in calls if not call.whole or call.status != 200]
        if bad:
            failures.append(f"{name}: {len(bad)} without a whole answer: {bad[0].error}")
    lag_s = quantile([(call.sent_s or 0.0) - call.due_s for call in fresh.calls], 0.99) or 0.0
    if lag_s > LAG_MAX_S:
        doubts.append(f"the load client was {lag_s * 1e3:.0f} ms late")
    if simulated["requests"] != len(fresh.calls):
        failures.append(f"{simulated['requests']} requests simulated, {len(fresh.calls)} sent")
    figures = compared(fresh.calls, simulated)
    rows = [
        (
            f"{name}{suffix.replace('_', ' ')}",
            figures.get(f"{name}{suffix}_measured_s"),
            figures.get(f"{name}{suffix}_predicted_s"),
            figures.get(f"{name}{suffix}_error_ratio"),
        )
        for name in KINDS
        for suffix in ("", "_p95")
    ]
    output.table("Fresh run, seconds", ("", "measured", "predicted", "error"), rows)
    document = {
        **figures,
        "requests": len(fresh.calls),
        "load_lag_p99_s": round(lag_s, 4),
        "fit": {key: fitted[key] for key in fitted if key != "file"},
        "extrapolated": simulated["assumptions"]["extrapolated"],
    }
    return document, verdict(document, BARS, failures=failures, doubts=doubts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fitted", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="see that everything runs")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    if not {GATEWAY_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        return output.finish({}, Verdict(NO_VERDICT, ("needs the cores 0 and 1",)))
    started_s = time.monotonic()
    seconds = QUICK_SECONDS if arguments.quick else SECONDS
    with scratch_directory() as directory:
        try:
            figures, judged = measure(directory, output, seconds=seconds)
        except NotReadyError as error:
            return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    whole = {
        **figures,
        "quick": arguments.quick,
        "seconds": round(time.monotonic() - started_s),
        "machine": describe(),
    }
    return output.finish(whole, judged)


if __name__ == "__main__":
    sys.exit(main())
