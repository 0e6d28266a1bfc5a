"""Claims: what practice reports of each technique, and how each row of them can be tested."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.support.claim_lab import Lab

__all__ = [
    "Claim",
    "ClaimedRatio",
    "Gain",
    "Numbers",
    "Outcome",
    "RowTest",
    "claimed_of",
    "read_claims",
    "row_test",
]

Numbers = Sequence[float]
ClaimedRatio = Callable[[Numbers], float]
_NUMBER = re.compile(r"(?:(?<![\w.])-)?(?<![A-Za-z\d.])\d+(?:\.\d+)?")
"""A figure, and not the digits of a name such as P99 or FP8."""
_COLUMNS = ("technique", "claimed", "conditions", "figure")


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the file; `numbers` are those of its column `claimed`, in their order."""

    technique: str
    numbers: tuple[float, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Gain:
    """One figure as it came out here. `low` and `high` are its 95 % interval over seeds; None
    where nothing was drawn by lot. `shown`: the two values that the ratio is of. `loads`: the
    figure at each load, where it depends on that; its own is then one of them."""

    ratio: float
    shown: str
    low: float | None = None
    high: float | None = None
    loads: tuple[tuple[str, Gain], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a test found: figures by name, the commands that show them, and what they mean."""

    figures: Mapping[str, Gain]
    commands: Sequence[str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTest:
    """How one row is tested. A row is known by words of its technique, in any order.

    `claims` computes each claimed figure out of the row's numbers; `absolute` are those that are a
    value, not a gain, and judged by how near ours is. A row without a `run` is untestable here, as
    are figures that `run` does not give; `awaits` says what would make them testable.
    """

    key: str
    title: str
    words: tuple[str, ...]
    conditions: str
    claims: Mapping[str, ClaimedRatio]
    run: Callable[[Lab], Outcome] | None = None
    absolute: frozenset[str] = field(default_factory=frozenset)
    awaits: str = ""


def read_claims(lines: Iterable[str]) -> list[Claim]:
    """Rows of the file. Raises ValueError that names the line for one that is no claim."""
    reader = csv.DictReader(lines)
    if tuple(reader.fieldnames or ()) != _COLUMNS:
        raise ValueError(f"line 1: expected the columns {', '.join(_COLUMNS)}")
    found = []
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num}: expected {len(_COLUMNS)} columns")
        numbers = tuple(float(text) for text in _NUMBER.findall(row["claimed"]))
        if not numbers:
            raise ValueError(f"line {reader.line_num}: no figure is claimed")
        found.append(Claim(row["technique"], numbers, reader.line_num))
    return found


def row_test(claim: Claim, tests: Iterable[RowTest]) -> RowTest | None:
    """The test of a row; None: nobody wrote one. Raises ValueError where several would do."""
    name = claim.technique.lower()
    fitting = [test for test in tests if all(word in name for word in test.words)]
    if len(fitting) > 1:
        keys = ", ".join(test.key for test in fitting)
        raise ValueError(f"line {claim.line}: more than one test is for this row: {keys}")
    return fitting[0] if fitting else None


def claimed_of(claim: Claim, test: RowTest) -> dict[str, float]:
    """The claimed figures by name. Raises ValueError where the row has other numbers than that."""
    try:
        found = {name: ratio(claim.numbers) for name, ratio in test.claims.items()}
    except (IndexError, ZeroDivisionError):
        raise ValueError(f"line {claim.line}: not the numbers that {test.key} reads") from None
    if any(value <= 0.0 for value in found.values()):
        raise ValueError(f"line {claim.line}: {test.key} reads a ratio that is not positive")
    return found
