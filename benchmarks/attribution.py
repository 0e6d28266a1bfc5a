"""Who used how much GPU time: estimates from what a gateway sees, against every step of an engine.

`make bench-attribution`, or `python -m benchmarks.attribution [--json] [--quick] [--jobs N]`. All
in virtual time, and the same in every run. See docs/reference/benchmarks.md for cases, bases and
bars. Exit code: 0 all bars met, 1 one missed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.support.attribution_cases import CASES, SATURATED, Case
from benchmarks.support.attribution_estimates import BASES, Measured, measure
from benchmarks.support.attribution_shapley import SHAPLEY_CASES, Shapley, shapley
from benchmarks.support.output import Output
from benchmarks.support.statistics import quantile
from benchmarks.support.verdict import Bar, verdict

__all__ = ["figures_of", "main"]

BARS = (
    Bar("cases", 20),
    Bar("error_step", 0.01, at_least=False),
    Bar("error_stream_median", 0.04, at_least=False),
    Bar("error_stream_p90", 0.09, at_least=False),
    Bar("error_firstlast_median", 0.09, at_least=False),
    Bar("error_firstlast_max", 0.15, at_least=False),
    Bar("error_shapley", 0.1, at_least=False),
    Bar("saturation_flagged", 0.9),
    Bar("false_flags", 0.05, at_least=False),
)
PREEMPTED_MAX_RATIO = 0.01
SHARE_MIN_RATIO = 0.1
COLUMNS = (
    "case",
    *("steps", "stream", "first/last"),
    *("two prices", "oracle", "tokens"),
    "real costs",
    *("in stream", "in first/last"),
)
TRAFFIC = ("case", "requests", "busy", "preempted", "least tenant", "windows", "anew", "flagged")


def figures_of(
    cases: Sequence[Measured], saturated: Sequence[Measured], values: Sequence[Shapley]
) -> dict[str, object]:
    """The figures that are judged, and those beside them; errors are of the worst tenant."""
    errors = {basis: sorted(each.error(basis) for each in cases) for basis in BASES}
    stream, ends = errors["token_times"], errors["first_last"]
    windows_again = sum(each.windows_again for each in saturated)
    quiet = sum(each.windows - each.windows_again for each in cases)
    return {
        "cases": len(cases),
        "error_step": errors["steps"][-1],
        "error_stream_median": statistics.median(stream),
        "error_stream_p90": quantile(stream, 0.9),
        "error_stream_max": stream[-1],
        "error_firstlast_median": statistics.median(ends),
        "error_firstlast_p90": quantile(ends, 0.9),
        "error_firstlast_max": ends[-1],
        "error_two_price": statistics.median(each.two_price for each in cases),
        "error_two_price_oracle": statistics.median(each.two_price_oracle for each in cases),
        "error_token_average": statistics.median(each.token_average for each in cases),
        "error_real_costs": statistics.median(each.by_table for each in cases),
        "error_shapley": _worst(values, "idle"),
        "error_shapley_backlog": _worst(values, "backlog"),
        "error_shapley_busy": _worst(values, "busy"),
        "error_shapley_prices": _worst(values, "idle", prices=True),
        "error_shapley_prices_backlog": _worst(values, "backlog", prices=True),
        "error_shapley_prices_busy": _worst(values, "busy", prices=True),
        "saturation_flagged": (
            sum(each.found["token_times"].flagged_again for each in saturated) / windows_again
            if windows_again
            else None
        ),
        "saturation_flagged_firstlast": (
            sum(each.found["first_last"].flagged_again for each in saturated) / windows_again
            if windows_again
            else None
        ),
        "false_flags": sum(
            each.found["token_times"].flagged - each.found["token_times"].flagged_again
            for each in cases
        )
        / quiet,
        "error_stream_saturated_max": max(
            (each.error("token_times") for each in saturated), default=None
        ),
        "error_firstlast_saturated_max": max(
            (each.error("first_last") for each in saturated), default=None
        ),
        "coverage_stream": _coverage(cases, "token_times"),
        "coverage_firstlast": _coverage(cases, "first_last"),
    }


def _worst(values: Sequence[Shapley], kind: str, *, prices: bool = False) -> float | None:
    """The largest error of a tenant in the games of that kind."""
    chosen = [v.errors_of_prices if prices else v.errors for v in values if v.kind == kind]
    return max((abs(error) for errors in chosen for error in errors.values()), default=None)


def _coverage(cases: Sequence[Measured], basis: str) -> float:
    """Shares of requests in windows whose interval has the true one."""
    found = [each.found[basis] for each in cases]
    return sum(each.inside for each in found) / sum(each.shares for each in found)


def invalid_of(cases: Sequence[Measured]) -> list[str]:
    """Cases that are none: a tenant too small, or too many requests that were preempted."""
    reasons = []
    for each in cases:
        if each.preempted_ratio >= PREEMPTED_MAX_RATIO:
            reasons.append(f"{each.case.name}: {each.preempted_ratio:.1%} preempted")
        if each.least_share < SHARE_MIN_RATIO:
            reasons.append(f"{each.case.name}: a tenant with {each.least_share:.1%} of the cost")
    return reasons


def _row(each: Measured) -> list[object]:
    def inside(basis: str) -> str:
        found = each.found[basis]
        return _percent(found.inside / max(1, found.shares))

    return [
        each.case.name,
        *(_percent(each.error(basis)) for basis in BASES),
        _percent(each.two_price),
        _percent(each.two_price_oracle),
        _percent(each.token_average),
        _percent(each.by_table),
        inside("token_times"),
        inside("first_last"),
    ]


def _traffic(each: Measured) -> list[object]:
    return [
        each.case.name,
        each.requests,
        _percent(each.busy_ratio),
        _percent(each.preempted_ratio),
        _percent(each.least_share),
        each.windows,
        each.windows_again,
        each.found["token_times"].flagged,
    ]


def _percent(ratio: float) -> str:
    return f"{100.0 * ratio:.1f} %"


def _show(
    output: Output,
    cases: Sequence[Measured],
    saturated: Sequence[Measured],
    values: Sequence[Shapley],
) -> None:
    every = (*cases, *saturated)
    output.table(
        "Traffic, and windows with prompts computed anew", TRAFFIC, list(map(_traffic, every))
    )
    output.table("Error of the worst tenant", COLUMNS, list(map(_row, cases)))
    title = "The same where requests are more than the KV cache has room for"
    output.table(title, COLUMNS, list(map(_row, saturated)))
    tenants = list(values[0].errors) if values else []
    output.table(
        "The formula against the Shapley value of busy time",
        ("case", "kind", "busy", "alone/all", *tenants),
        [
            [
                each.case.name,
                each.kind,
                _percent(each.busy_ratio),
                each.solo_ratio,
                *(_percent(each.errors[tenant]) for tenant in tenants),
            ]
            for each in values
        ],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attribution", description=__doc__)
    parser.add_argument("--json", action="store_true", help="no tables, only the JSON object")
    parser.add_argument("--quick", action="store_true", help="one case of each kind")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    cases: Sequence[Case] = CASES
    full: Sequence[Case] = SATURATED
    games: Sequence[Case] = SHAPLEY_CASES
    if arguments.quick:
        cases, full, games = CASES[:4:3], SATURATED[1:2], SHAPLEY_CASES[:1]
    began_s = time.monotonic()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        # The longest ones first: the last ones to end should be short.
        order = sorted((*cases, *full), key=lambda case: -case.scale)
        started = {case: pool.submit(measure, case) for case in order}
        games_started = [pool.submit(shapley, case) for case in games]
        for case in order:
            output.say(f"{case.name}: {started[case].result().requests} requests")
        measured = [started[case].result() for case in cases]
        saturated = [started[case].result() for case in full]
        values = [each.result() for each in games_started]
    _show(output, measured, saturated, values)
    figures = figures_of(measured, saturated, values)
    figures["wall_s"] = round(time.monotonic() - began_s, 1)
    bars = BARS[1:] if arguments.quick else BARS
    return output.finish(figures, verdict(figures, bars, invalid=invalid_of(measured)))


if __name__ == "__main__":
    sys.exit(main())
