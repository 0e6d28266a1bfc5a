"""The page of claims: each row with its ratio, ours, the verdict, and the command that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.support.claim_lab import SEEDS
from benchmarks.support.claim_ladder import LADDER
from benchmarks.support.claim_row import Outcome, RowTest
from benchmarks.support.claim_verdict import RULE, Word, judge

__all__ = ["Judged", "page"]

_TITLE = "# What practice claims, and what comes of it here"
_WRITTEN = (
    "<!-- Written by `make bench-claims`; the tests are in benchmarks/support/claim_*_rows.py. -->"
)
_INTRODUCTION = (
    "Articles and talks about inference report what each technique brought. Here each such ratio "
    "stands beside the one that this project finds, with the command that finds it. Most of ours "
    "are simulated: step times are those of the [fitted cost model](explanation/step-time.md), and "
    "the conditions that a claim leaves open are chosen and told."
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A row, and what came of it. `test` is None for a row that no test knows; `problem` says why
    a row could not be judged."""

    name: str
    test: RowTest | None
    claimed: dict[str, float]
    outcome: Outcome | None
    words: dict[str, Word]
    word: Word
    problem: str = ""


def page(rows: Sequence[Judged], seeds: Sequence[int] = SEEDS) -> str:
    """The whole page as Markdown."""
    parts = [f"{_TITLE}\n\n{_WRITTEN}\n\n", _wrapped(_INTRODUCTION)]
    parts += ["\n\n## How they are judged\n\n", _wrapped(RULE), "\n\n"]
    parts += [_wrapped(LADDER), "\n\n"]
    parts.append(
        _wrapped(
            f"Intervals are of 95 % over seeds {seeds[0]} to {seeds[-1]} (`--seed`): both arms "
            "met the same requests. They do not hold what the step times may be wrong by "
            "([80 % intervals](how-to/simulate.md)), which both arms of a ratio share where they "
            "are the same GPU and model."
        )
    )
    parts.append("\n\n## All rows\n\n| Technique | Figure | Claimed | Here | Verdict |\n")
    parts.append("|---|---|---|---|---|\n")
    for row in rows:
        parts += _table_lines(row)
    parts.append("\n" + _counts(rows))
    parts += [_section(row) for row in rows]
    return "".join(parts)


def _counts(rows: Iterable[Judged]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.word] = counts.get(row.word, 0) + 1
    return "Rows: " + ", ".join(f"{n} {word}" for word, n in sorted(counts.items())) + ".\n"


def _title(row: Judged) -> str:
    return row.test.title if row.test else "A row that no test knows"


def _table_lines(row: Judged) -> list[str]:
    if not row.claimed:
        return [f"| {_title(row)} | | | | {row.word} |\n"]
    lines: list[str] = []
    for name, claimed in row.claimed.items():
        found = row.outcome.figures.get(name) if row.outcome else None
        ours = "-" if found is None else f"{found.ratio:.3g}"
        if found is not None and found.low is not None and found.high is not None:
            ours += f" ({found.low:.3g} to {found.high:.3g})"
        if found is not None and found.loads:
            ratios = [gain.ratio for _, gain in found.loads]
            ours += f"; {min(ratios):.3g} to {max(ratios):.3g} over loads"
        title = _title(row) if not lines else ""
        lines.append(f"| {title} | `{name}` | {claimed:.3g} | {ours} | {row.words[name]} |\n")
    return lines


def _section(row: Judged) -> str:
    if row.test is None:
        return ""
    title = f"\n## {row.test.title}\n\n"
    if row.outcome is None:
        why = row.problem or f"It takes {row.test.awaits}."
        return title + _wrapped(f"**{row.word.capitalize()}.** {why}") + "\n"
    body = [f"**{row.word.capitalize()}.** {row.outcome.reason}"]
    missing = [name for name in row.claimed if name not in row.outcome.figures]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        body.append(f"Not tested: {names}. It takes {row.test.awaits}.")
    elif row.test.awaits:
        body.append(f"For all of it, it takes {row.test.awaits}.")
    body.append(f"Conditions: {row.test.conditions}.")
    lines = [title, "\n\n".join(_wrapped(each) for each in body) + "\n\n"]
    for name, found in row.outcome.figures.items():
        ratio = "" if name in row.claimed else f", {found.ratio:.3g} times"
        lines.append(f"- `{name}`: {found.shown}{ratio}\n")
        for load, gain in found.loads:
            word = judge(row.claimed[name], gain, absolute=name in row.test.absolute)
            lines.append(f"    - at {load}: {gain.shown}, {gain.ratio:.3g}: {word}\n")
    commands = "\n".join(row.outcome.commands)
    return "".join(lines) + f"\n```\n{commands}\n```\n"


def _wrapped(text: str, width: int = 116) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])
