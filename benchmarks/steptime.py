"""The step-time model against measured serving results of sources that it was not fitted to.

`make bench-steptime`, or `python -m benchmarks.steptime [--json] [--data FILE] [--write]`. Reads
measured.csv (MILEAGE_DATA_DIR, or --data), leaves each source class out in turn, fits the
efficiencies to the others, and predicts the one that was left out. --write fits to all of them and
writes src/mileage/costmodel/efficiency_table.py anew. Exit code: 0 all bars met, 1 one missed, 3
no data.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.support.machine import describe
from benchmarks.support.measured import Measured, Readings, read
from benchmarks.support.output import Output
from benchmarks.support.steptime_fit import fit
from benchmarks.support.steptime_judge import Judged, fitted_without, judge, within_rows
from benchmarks.support.steptime_pairs import pair_figures
from benchmarks.support.steptime_table import TABLE, table_text
from benchmarks.support.verdict import Bar, verdict
from mileage.costmodel.operators import Array

__all__ = ["main"]

BARS = (
    Bar("tpot_mdape", 0.15, at_least=False),
    Bar("ttft_mdape", 0.25, at_least=False),
    Bar("coverage", 0.75),
    Bar("coverage", 0.85, at_least=False),
)


def mdape(errors: Array) -> float | None:
    """Median of |predicted - measured| / measured; None without rows."""
    return float(np.median(np.abs(np.expm1(errors)))) if len(errors) else None


def figures(judged: Sequence[Judged]) -> dict[str, object]:
    """What all rows come to, and each class."""
    tpot = np.concatenate([each.tpot for each in judged])
    ttft = np.concatenate([each.ttft for each in judged])
    covered = np.concatenate([c for each in judged for c in (each.tpot_covered, each.ttft_covered)])
    return {
        "tpot_mdape": _rounded(mdape(tpot)),
        "ttft_mdape": _rounded(mdape(ttft)),
        "coverage": _rounded(float(covered.mean())),
        "rows": len(tpot),
        "ttft_rows": len(ttft),
        "classes": {
            each.source_class: {
                "tpot_rows": len(each.tpot),
                "tpot_mdape": _rounded(mdape(each.tpot)),
                "tpot_coverage": _mean(each.tpot_covered),
                "ttft_rows": len(each.ttft),
                "ttft_mdape": _rounded(mdape(each.ttft)),
                "ttft_coverage": _mean(each.ttft_covered),
            }
            for each in judged
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _mean(values: Array) -> float | None:
    return _rounded(float(values.mean())) if len(values) else None


def show(output: Output, judged: Sequence[Judged], readings: Readings) -> None:
    """The tables that people read."""
    rows = [
        (
            each.source_class,
            len(each.tpot),
            _percent(mdape(each.tpot)),
            _percent(_mean(each.tpot_covered)),
            len(each.ttft),
            _percent(mdape(each.ttft)),
            _percent(_mean(each.ttft_covered)),
        )
        for each in judged
    ]
    columns = ("left out", "TPOT rows", "error", "covered", "TTFT rows", "error", "covered")
    output.table("Median error of a source that was left out of the fit", columns, rows)
    left = [(source, why, count) for (source, why), count in sorted(readings.left_out.items())]
    output.table("Rows that are not used", ("source", "why", "rows"), left)


def show_pairs(output: Output, pairs: Mapping[str, Mapping[str, object]]) -> None:
    """How far off ratios of two runs are."""
    columns = ("pairs that differ in", "TPOT pairs", "within x", "TTFT pairs", "within x")
    rows = [(kind, *row.values()) for kind, row in pairs.items()]
    output.table("Four of five measured ratios of two runs are within", columns, rows)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def write(rows: Sequence[Measured], output: Output) -> None:
    """Fit to all rows, and write the table."""
    output.say(f"fitting to all {len(rows)} rows")
    tpot, ttft = within_rows(rows)
    TABLE.write_text(table_text(fit(rows), tpot, ttft), "utf-8")
    output.say(f"wrote {TABLE.name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steptime", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--data", type=Path, help="measured.csv [default: of MILEAGE_DATA_DIR]")
    parser.add_argument("--write", action="store_true", help="write the fitted table, and no more")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    directory = os.environ.get("MILEAGE_DATA_DIR")
    path = arguments.data or (Path(directory) / "measured.csv" if directory else None)
    if path is None or not path.exists():
        judged = verdict({}, (), invalid=("no measured.csv: set MILEAGE_DATA_DIR",))
        return output.finish({"machine": describe()}, judged)
    readings = read(path)
    output.say(f"{len(readings.rows)} rows, {sum(readings.left_out.values())} not used")
    if arguments.write:
        write(readings.rows, output)
        return 0
    found = judge(readings.rows, output.say)
    show(output, found, readings)
    pairs = pair_figures(readings.rows, lambda name: fitted_without(readings.rows, name))
    show_pairs(output, pairs)
    result = {**figures(found), "pairs": pairs}
    return output.finish({**result, "machine": describe()}, verdict(result, BARS))


if __name__ == "__main__":
    sys.exit(main())
