"""What practice claims of each technique: reproduced, refuted or untestable here.

`make bench-claims`, or `python -m benchmarks.claims [--json] [--only KEY] [--seeds N]`.
Reads claims.csv beside MILEAGE_DATA_DIR and writes docs/claims.md (a whole run does). See that page
for the rule. Exit code: 0 all rows judged, 1 a test of a row failed, 3 no verdict.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.support.claim_lab import SEEDS, Lab
from benchmarks.support.claim_page import Judged, page
from benchmarks.support.claim_row import Claim, claimed_of, read_claims, row_test
from benchmarks.support.claim_tests import TESTS
from benchmarks.support.claim_verdict import Word, judge, row_word
from benchmarks.support.output import Output
from benchmarks.support.verdict import FAILED, NO_VERDICT, PASSED, Verdict
from mileage.core.errors import MileageError

__all__ = ["claims_path", "judged", "main"]

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
_FILE = "claims.csv"


def claims_path() -> Path | None:
    """The file of claims, which lies beside the data; None: there is none."""
    value = os.environ.get("MILEAGE_DATA_DIR")
    if not value:
        return None
    path = Path(value).resolve().parent / _FILE
    return path if path.is_file() else None


def judged(claim: Claim, lab: Lab) -> Judged:
    """One row put to its test. A test that fails is told in `problem`, and leaves it untested."""
    test = row_test(claim, TESTS.values())
    if test is None:
        problem = f"line {claim.line}: no test knows this row"
        return Judged(f"line {claim.line}", None, {}, None, {}, "untestable here", problem)
    claimed, outcome, problem = claimed_of(claim, test), None, ""
    try:
        outcome = test.run(lab) if test.run else None
    except (MileageError, RuntimeError, ValueError) as error:
        problem = f"The test failed: {error}"
    figures = outcome.figures if outcome else {}
    words: dict[str, Word] = {
        name: judge(value, figures.get(name), absolute=name in test.absolute)
        for name, value in claimed.items()
    }
    return Judged(test.key, test, claimed, outcome, words, row_word(words.values()), problem)


def _figures(rows: Sequence[Judged]) -> dict[str, object]:
    counts = Counter(row.word for row in rows)
    return {
        "rows": len(rows),
        "reproduced": counts["reproduced"],
        "partly": counts["partly"],
        "refuted": counts["refuted"],
        "depends_on_load": counts["depends on load"],
        "untestable": counts["untestable here"],
        "claims": {
            row.name: {
                "verdict": row.word,
                "figures": {name: _figure(row, name) for name in row.claimed},
            }
            for row in rows
        },
    }


def _figure(row: Judged, name: str) -> dict[str, object]:
    found = row.outcome.figures.get(name) if row.outcome else None
    return {
        "claimed": round(row.claimed[name], 4),
        "ours": None if found is None else round(found.ratio, 4),
        "ci95": None
        if found is None or found.low is None or found.high is None
        else [round(found.low, 4), round(found.high, 4)],
        "verdict": row.words[name],
        "loads": None
        if found is None or not found.loads
        else {load: round(gain.ratio, 4) for load, gain in found.loads},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark, write its page, and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--json", action="store_true", help="no tables, only the JSON object")
    parser.add_argument("--only", default="", help="comma-separated keys of rows; no page then")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), choices=range(1, len(SEEDS) + 1))
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    path = claims_path()
    if path is None:
        reason = f"MILEAGE_DATA_DIR names no directory with {_FILE} beside it: no claims to test"
        return output.finish({}, Verdict(NO_VERDICT, (reason,)))
    wanted = [key for key in arguments.only.split(",") if key]
    unknown = [key for key in wanted if key not in TESTS]
    if unknown:
        parser.error(f"--only: got {unknown[0]!r}, expected some of {', '.join(TESTS)}")
    began_s = time.monotonic()
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            claims = read_claims(lines)
        if wanted:
            fitting = [(claim, row_test(claim, TESTS.values())) for claim in claims]
            claims = [claim for claim, test in fitting if test is not None and test.key in wanted]
        lab, rows = Lab(SEEDS[: arguments.seeds]), []
        for claim in claims:
            rows.append(judged(claim, lab))
            output.say(f"{rows[-1].name}: {rows[-1].word} {rows[-1].problem}".rstrip())
    except ValueError as error:
        return output.finish({}, Verdict(NO_VERDICT, (f"{path.name}: {error}",)))
    _show(output, rows)
    if not wanted:
        arguments.page.write_text(page(rows, lab.seeds), encoding="utf-8")
        output.say(f"written: {arguments.page}")
    figures = _figures(rows)
    figures["wall_s"] = round(time.monotonic() - began_s, 1)
    failures = tuple(f"{row.name}: {row.problem}" for row in rows if row.problem)
    return output.finish(figures, Verdict(FAILED if failures else PASSED, failures))


def _show(output: Output, rows: Sequence[Judged]) -> None:
    lines: list[list[object]] = []
    for row in rows:
        for name, claimed in row.claimed.items():
            found = row.outcome.figures.get(name) if row.outcome else None
            ours = (None, None, None) if found is None else (found.ratio, found.low, found.high)
            lines.append([row.name, name, claimed, *ours, row.words[name]])
    output.table("Claims", ("row", "figure", "claimed", "ours", "low", "high", "verdict"), lines)


if __name__ == "__main__":
    sys.exit(main())
