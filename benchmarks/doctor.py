"""The doctor, put to trouble reports: is the cause named, and the healthy left alone?

`make bench-doctor`, or `python -m benchmarks.doctor [--json] [--quick]`. Reads the reports in
`doctor/` beside MILEAGE_DATA_DIR, where they are, and the project's own. Exit code: 0 all bars
met, 1 not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks.support.doctor_reports import OWN, given_directory, read_reports
from benchmarks.support.doctor_score import Answer, answers, bare, hidden_figures, summary
from benchmarks.support.output import Output
from benchmarks.support.verdict import Bar, verdict

__all__ = ["figures_of", "main"]

SEED = 20
DRAWS = 3

BARS = (
    Bar("top1", 0.90),
    Bar("top2", 0.97),
    Bar("harmful", 1, at_least=False),
    Bar("false_alarms", 1, at_least=False),
)


def figures_of(output: Output, *, draws: int) -> dict[str, object]:
    """Ask about every report, show those that fail, and give all figures."""
    own = read_reports(OWN)
    directory = given_directory()
    if directory is None:
        output.say("no reports beside MILEAGE_DATA_DIR: the project's own stand for them")
    given = own if directory is None else read_reports(directory)
    own_asked = answers(own)
    asked = own_asked if directory is None else answers(given)
    if directory is not None:
        table(output, "Reports given", asked)
    table(output, "The project's own reports", own_asked)
    kept_back = [each for each in own_asked if each.report.held_out]
    own_hidden = hidden_figures(own, draws=draws, seed=SEED)
    figures: dict[str, object] = {
        **summary(asked),
        "of": "the project's own reports" if directory is None else "the reports given",
        "without_what_diagnosis_established": summary(bare(given)),
        "hidden": own_hidden
        if directory is None
        else hidden_figures(given, draws=draws, seed=SEED),
        **{f"reports_{name}": value for name, value in summary(own_asked).items()},
        "reports_hidden": own_hidden,
        **{f"held_out_{name}": value for name, value in summary(kept_back).items()},
    }
    for name in ("hidden", "reports_hidden"):
        hidden_table(output, name, figures[name])
    return figures


def table(output: Output, title: str, asked: Sequence[Answer]) -> None:
    """Each report whose answer is not as expected."""
    rows = [
        (
            each.report.id + ("*" if each.report.held_out else ""),
            each.report.expected.primary or "healthy",
            ", ".join(each.causes[:3]) or each.verdict,
            ", ".join(each.harm) or None,
        )
        for each in asked
        if each.failed
    ]
    columns = ("report (* held out)", "expected", "said", "harm")
    output.table(f"{title}: {len(rows)} of {len(asked)} not as expected", columns, rows)


def hidden_table(output: Output, title: str, shares: object) -> None:
    """What the first finding is worth when facts are hidden."""
    assert isinstance(shares, dict)
    columns = ("facts hidden", *next(iter(shares.values())))
    output.table(title, columns, [(share, *row.values()) for share, row in shares.items()])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="one draw of hidden facts")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    start_s = time.monotonic()
    figures = figures_of(output, draws=1 if arguments.quick else DRAWS)
    elapsed_s = round(time.monotonic() - start_s, 1)
    return output.finish({**figures, "elapsed_s": elapsed_s}, verdict(figures, BARS))


if __name__ == "__main__":
    sys.exit(main())
