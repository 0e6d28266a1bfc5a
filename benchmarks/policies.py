"""Policies of batching against each other: capacity within targets, in virtual time.

`make bench-policies`, or `python -m benchmarks.policies [--json] [--quick] [--jobs N]`. Traces are
read from MILEAGE_DATA_DIR. See docs/reference/benchmarks.md for cells, arms and bars. Exit code: 0
all bars met, 1 one missed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.support.output import Output
from benchmarks.support.policy_arms import MODEL_ARM, MODEL_MEAN_ARM, Arm, default_arm, policy_arm
from benchmarks.support.policy_capacity import Capacity, Judge, Point, capacity
from benchmarks.support.policy_cells import CELLS, Cell, data_directory
from benchmarks.support.policy_sweep import best_rejecting, best_static
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from mileage.control.config import LimitPolicyName

__all__ = ["main"]

FULL = Judge((0.25, 0.45, 0.8), 600)
"""Settings were chosen on windows that begin at 0.1, 0.35, 0.6 and 0.7."""
QUICK = Judge((0.25,), 400)
OVERLOAD = 1.5
LONG = ("mooncake", "mix")
DEFAULT_PAIRINGS = ("A10", "A100")
OTHERS: tuple[LimitPolicyName, ...] = (
    "aimd",
    "volatility",
    "utilisation",
    "tail_memory",
    "mixture",
    "model",
)
BARS = (
    Bar("min_vs_best_static", 1.15),
    Bar("geomean_vs_best_static", 1.25),
    Bar("min_vs_static_rejecting", 0.97),
    Bar("long_vs_static_rejecting", 1.5),
    Bar("overload_goodput_ratio", 1.05),
    Bar("mean_vs_vllm_default", 2.0),
    Bar("worst_decile_pass", 0.85),
)


@dataclass(frozen=True, slots=True)
class Found:
    """All that was measured in one cell."""

    cell: Cell
    default: Capacity
    default_mean: Capacity
    static: Capacity
    rejecting: Capacity
    model: Capacity
    model_mean: Capacity
    others: dict[str, Capacity]
    overload: Point


def measure_capacity(judge: Judge, cell: Cell, arm: Arm, guess_rps: float) -> Capacity:
    """Of one arm."""
    return capacity(partial(judge.point, cell, arm), arm, guess_rps=guess_rps)


def measure_overload(judge: Judge, cell: Cell, rate_rps: float) -> Point:
    """What `model` serves well at a rate that is too high for the best fixed limits."""
    return judge.point(cell, MODEL_ARM, OVERLOAD * rate_rps)


class Bench:
    """One run: every cell's fixed limits first, since all else is measured against them."""

    def __init__(self, judge: Judge, pool: ProcessPoolExecutor, output: Output) -> None:
        self._judge, self._pool, self._output = judge, pool, output

    def run(self, cells: Sequence[Cell]) -> list[Found]:
        """Measure all cells."""
        statics = {c.name: self._pool.submit(best_static, self._judge, c) for c in cells}
        later = []
        for cell in cells:
            static = statics[cell.name].result()
            self._output.say(f"{cell.name}: best static {static.arm}: {static.rate_rps:.3g}/s")
            later.append((cell, static, self._start(cell, static)))
        found = []
        for cell, static, started in later:
            found.append(_found(cell, static, started))
            self._show(found[-1])
        return found

    def _start(self, cell: Cell, static: Capacity) -> dict[str, Future[Capacity] | Future[Point]]:
        judge, submit = self._judge, self._pool.submit
        mean = replace(judge, itl="mean")
        guess = static.rate_rps or 0.5
        default = default_arm(cell.pairing)
        started: dict[str, Future[Capacity] | Future[Point]] = {
            "rejecting": submit(best_rejecting, judge, cell, static),
            "model": submit(measure_capacity, judge, cell, MODEL_ARM, 1.3 * guess),
            "overload": submit(measure_overload, judge, cell, guess),
            "default": submit(measure_capacity, judge, cell, default, guess / 2),
        }
        if cell.pairing.name in DEFAULT_PAIRINGS:
            started["default_mean"] = submit(measure_capacity, mean, cell, default, guess / 2)
            started["model_mean"] = submit(
                measure_capacity, mean, cell, MODEL_MEAN_ARM, 1.3 * guess
            )
        for name in OTHERS:
            arm = policy_arm(name, cell.pairing, step_tokens=static.arm.step_tokens)
            started[f"only {name}"] = submit(measure_capacity, judge, cell, arm, guess)
        return started

    def _show(self, found: Found) -> None:
        rows: list[list[object]] = []
        arms = {
            "vLLM's defaults": found.default,
            "best static": found.static,
            "best static, rejecting": found.rejecting,
            **{f"{name}, in the gateway": each for name, each in found.others.items()},
            "model, gateway and engine": found.model,
        }
        for name, each in arms.items():
            point = each.point
            ratio = each.rate_rps / found.static.rate_rps if found.static.rate_rps else None
            rows.append(
                [
                    name,
                    str(each.arm),
                    each.rate_rps,
                    ratio,
                    None if point is None else point.attained_ratio,
                    None if point is None else point.worst_decile_ratio,
                    None if point is None else point.longest_ratio,
                    None if point is None else point.refused_ratio,
                ]
            )
        columns = ("arm", "engine", "1/s", "x static", "kept", "decile", "top 3 %", "refused")
        self._output.table(found.cell.name, columns, rows)


def _found(
    cell: Cell, static: Capacity, started: dict[str, Future[Capacity] | Future[Point]]
) -> Found:
    done = {name: future.result() for name, future in started.items()}
    capacities = {name: each for name, each in done.items() if isinstance(each, Capacity)}
    overload = done["overload"]
    assert isinstance(overload, Point)
    return Found(
        cell=cell,
        default=capacities["default"],
        default_mean=capacities.get("default_mean", capacities["default"]),
        static=static,
        rejecting=capacities["rejecting"],
        model=capacities["model"],
        model_mean=capacities.get("model_mean", capacities["model"]),
        others={name[5:]: each for name, each in capacities.items() if name.startswith("only ")},
        overload=overload,
    )


def figures_of(found: Sequence[Found]) -> dict[str, object]:
    """The figures that are judged, and each cell's. A cell whose baseline keeps its targets at no
    rate has no ratio, and is named."""
    static = {f.cell.name: _ratio(f.model, f.static) for f in found}
    rejecting = {f.cell.name: _ratio(f.model, f.rejecting) for f in found}
    long = [rejecting[f.cell.name] for f in found if f.cell.trace in LONG]
    azure = [rejecting[f.cell.name] for f in found if f.cell.trace not in LONG]
    overload = {
        f.cell.name: f.overload.goodput_rps / f.static.rate_rps if f.static.rate_rps else None
        for f in found
    }
    mean = {
        f.cell.name: _ratio(f.model_mean, f.default_mean)
        for f in found
        if f.cell.pairing.name in DEFAULT_PAIRINGS and f.cell.trace not in LONG
    }
    ratios = [ratio for ratio in static.values() if ratio]
    points = [f.model.point for f in found]
    return {
        "min_vs_best_static": _least(static.values()),
        "geomean_vs_best_static": (
            math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
        ),
        "min_vs_static_rejecting": _least(azure),
        "long_vs_static_rejecting": _least(long),
        "overload_goodput_ratio": _least(overload.values()),
        "mean_vs_vllm_default": _least(mean.values()),
        "worst_decile_pass": _least(p.worst_decile_ratio if p else 0.0 for p in points),
        "worst_longest_pass": _least(p.longest_ratio if p else 0.0 for p in points),
        "vs_best_static": static,
        "vs_static_rejecting": rejecting,
        "overload_goodput": overload,
        "mean_vs_default": mean,
        "capacity_rps": {f.cell.name: f.model.rate_rps for f in found},
        "best_static_rps": {f.cell.name: f.static.rate_rps for f in found},
        "zero_baseline": [name for name, ratio in {**static, **rejecting}.items() if ratio is None],
        "policies_vs_best_static": {
            name: {f.cell.name: _ratio(f.others[name], f.static) for f in found} for name in OTHERS
        },
    }


def _ratio(ours: Capacity, theirs: Capacity) -> float | None:
    return ours.rate_rps / theirs.rate_rps if theirs.rate_rps else None


def _least(values: object) -> float | None:
    known = [value for value in values if value is not None]  # type: ignore[attr-defined]
    return min(known, default=None)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--json", action="store_true", help="no tables, only the JSON object")
    parser.add_argument("--quick", action="store_true", help="one short window, two cells")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--cells", default="", help="comma-separated parts of cells' names")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    if data_directory() is None:
        reason = "MILEAGE_DATA_DIR names no directory: no traces to run"
        return output.finish({}, Verdict(NO_VERDICT, (reason,)))
    judge, cells = (QUICK, CELLS[2:5:2]) if arguments.quick else (FULL, CELLS)
    wanted = [part for part in arguments.cells.split(",") if part]
    if wanted:
        cells = tuple(c for c in CELLS if any(part in c.name for part in wanted))
    began_s = time.monotonic()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        found = Bench(judge, pool, output).run(cells)
    figures = figures_of(found)
    figures["wall_s"] = round(time.monotonic() - began_s, 1)
    return output.finish(figures, verdict(figures, BARS))


if __name__ == "__main__":
    sys.exit(main())
