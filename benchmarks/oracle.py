"""The step-time model beside an oracle: NVIDIA's aiconfigurator-core, a database of kernels.

`make bench-oracle`, or `python -m benchmarks.oracle [--json] [--data FILE]`. Compares a step that
decodes, a lone prompt and both together for models, GPUs and engines that the two know. An oracle
is another model, not a measurement; so where measured.csv is there (MILEAGE_DATA_DIR, or --data)
both are also set against the rows that were measured. There are no bars. Exit code: 0 compared,
3 the oracle is not installed or fails.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.support.machine import describe
from benchmarks.support.measured import read
from benchmarks.support.oracle_client import ORACLE, ask, query
from benchmarks.support.oracle_kernels import KINDS, Compared, compare, gathered, mdape, spread
from benchmarks.support.oracle_measured import Judgement, judge_rows, ratios
from benchmarks.support.oracle_setups import SETUPS, steps
from benchmarks.support.output import Output
from benchmarks.support.verdict import NO_VERDICT, Verdict, verdict

__all__ = ["main"]

STEPS = ("decode", "prefill", "mixed")
FIELDS = ("tpot", "ttft")


def compare_setups(output: Output) -> tuple[str, list[Compared]]:
    """The oracle's version, and every set-up. RuntimeError where the oracle fails as a whole."""
    asked = []
    for setup in SETUPS:
        deployment = setup.deployment()
        wanted = list(steps(deployment))
        question = query(deployment, wanted)
        if question is not None:
            asked.append((setup, wanted, question))
    output.say(f"asking the oracle for {sum(len(w) for _, w, _ in asked)} steps")
    version, answers = ask([question for _, _, question in asked])
    found = [
        compare(setup, wanted, answer)
        for (setup, wanted, _), answer in zip(asked, answers, strict=True)
    ]
    return version, found


def figures(compared: Sequence[Compared]) -> dict[str, object]:
    """Over all steps, and of each set-up."""
    all_ratios = gathered(compared)
    found: dict[str, object] = {
        f"oracle_{kind}_mdape": _rounded(mdape(all_ratios[kind])) for kind in STEPS
    }
    for kind in STEPS:
        over_all = spread(all_ratios[kind])
        found[f"oracle_{kind}_ratio"] = None if over_all is None else _rounded(over_all.median)
    found["rows"] = sum(len(each) for each in all_ratios.values())
    found["missing"] = sum(each.missing for each in compared)
    found["setups"] = [
        {
            "setup": str(each.setup),
            **{
                kind: None if found_ is None else [_rounded(value) for value in found_]
                for kind, found_ in ((kind, spread(each.ratios.get(kind, ()))) for kind in STEPS)
            },
            "missing": each.missing,
            "reason": each.reason,
        }
        for each in compared
    ]
    return found


def measured_figures(judged: Sequence[Judgement]) -> dict[str, object]:
    """Errors of both on the rows that were measured; empty without rows."""
    if not judged:
        return {}
    found: dict[str, object] = {"measured_rows": len(judged)}
    for field in FIELDS:
        for who in ("ours", "oracle"):
            found[f"measured_{field}_mdape_{who}"] = _rounded(
                mdape(ratios(judged, f"{who}_{field}").tolist())
            )
    return found


def show_setups(output: Output, compared: Sequence[Compared]) -> None:
    """Ours over the oracle's, set-up by set-up, and kind by kind."""
    rows = []
    for each in compared:
        cells = [_cell(spread(each.ratios.get(kind, ()))) for kind in STEPS]
        share = spread(each.measured)
        rows.append((str(each.setup), *cells, "" if share is None else f"{share.median:.0%}"))
    columns = ("ours / oracle's", *STEPS, "measured")
    output.table("Steps: median, and what four of five are within", columns, rows)
    parts = [(kind, *(_kind_cell(compared, step, kind) for step in STEPS)) for kind in KINDS]
    output.table(
        "Kinds of operators: median of the set-ups, and its share of the oracle's step",
        ("ours / oracle's", *STEPS),
        parts,
    )
    for each in compared:
        if each.reason is not None:
            output.say(f"{each.setup}: {each.missing} steps without an answer: {each.reason}")


def _kind_cell(compared: Sequence[Compared], step: str, kind: str) -> str:
    found, shares = [], []
    for each in compared:
        whole_s = sum(each.kinds.get((step, other), (0.0, 0.0))[1] for other in KINDS)
        ours_s, theirs_s = each.kinds.get((step, kind), (0.0, 0.0))
        if theirs_s:
            found.append(ours_s / theirs_s)
            shares.append(theirs_s / whole_s)
    share = spread(shares)
    return "" if share is None else f"{_cell(spread(found))} {share.median:.0%}"


def _cell(found: tuple[float, float, float] | None) -> str:
    return "" if found is None else f"{found[0]:.2f} ({found[1]:.2f}-{found[2]:.2f})"


def show_measured(output: Output, judged: Sequence[Judgement]) -> None:
    """Predicted over measured, by model, GPU, precision and engine."""
    groups: dict[tuple[str, ...], list[Judgement]] = {}
    for each in judged:
        d = each.row.deployment
        name = (d.model.name.split("/")[-1], d.gpu.name.split("-")[0])
        groups.setdefault((*name, d.weights, d.engine), []).append(each)
    rows = []
    everything: list[tuple[tuple[str, ...], list[Judgement]]] = [(("all",), list(judged))]
    for key, group in sorted(groups.items()) + everything:
        cells = []
        for field in FIELDS:
            for who in ("ours", "oracle"):
                values = ratios(group, f"{who}_{field}").tolist()
                over = spread(values)
                error = mdape(values)
                cells.append("" if over is None else f"{over.median:.2f} ({error:.0%})")
        rows.append((" ".join(key), len(group), *cells))
    columns = (
        "predicted / measured (error)",
        "rows",
        "TPOT ours",
        "oracle's",
        "TTFT ours",
        "oracle's",
    )
    output.table("Measured rows", columns, rows)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracle", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--data", type=Path, help="measured.csv [default: of MILEAGE_DATA_DIR]")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    if not ORACLE.exists():
        reason = "the oracle is not installed: make oracle"
        return output.finish({"machine": describe()}, Verdict(NO_VERDICT, (reason,)))
    try:
        version, compared = compare_setups(output)
    except RuntimeError as error:
        return output.finish({"machine": describe()}, Verdict(NO_VERDICT, (str(error),)))
    show_setups(output, compared)
    directory = os.environ.get("MILEAGE_DATA_DIR")
    path = arguments.data or (Path(directory) / "measured.csv" if directory else None)
    judged: list[Judgement] = []
    if path is None or not path.exists():
        output.say("no measured.csv (MILEAGE_DATA_DIR): not set against measurements")
    else:
        judged = judge_rows(read(path).rows, output.say)
        show_measured(output, judged)
    result = {**figures(compared), **measured_figures(judged)}
    document = {**result, "oracle_version": version, "machine": describe()}
    return output.finish(document, verdict(result, ()))


if __name__ == "__main__":
    sys.exit(main())
