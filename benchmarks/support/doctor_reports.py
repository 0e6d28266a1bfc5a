"""Trouble reports: facts of a deployment and the cause that a good engineer would name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mileage.doctor.facts import Facts, decode_facts

__all__ = ["OWN", "Expected", "Report", "given_directory", "read_reports", "without"]

OWN = Path(__file__).parents[2] / "tests" / "doctor" / "reports"
"""The project's own reports."""

SECTIONS = ("engine", "model", "hardware", "settings", "workload", "signals", "topology")


class Expected(msgspec.Struct, frozen=True):
    """The right answer. `primary` is None where the deployment is healthy."""

    primary: str | None
    acceptable: tuple[str, ...]
    """Also right as the first finding."""
    also_ok: tuple[str, ...]
    """Also true, as a further finding."""
    max_severity: str | None = None

    @property
    def right(self) -> frozenset[str]:
        """Causes that are right as the first finding."""
        named = () if self.primary is None else (self.primary,)
        return frozenset((*named, *self.acceptable))


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One report; `facts` is a facts document."""

    id: str
    facts: dict[str, Any]
    expected: Expected
    must_not: tuple[str, ...]
    source: str
    held_out: bool = False
    """Not looked at while a rule is written."""
    confidence: str | None = None
    after_fix: str | None = None
    from_diagnosis: tuple[str, ...] = ()
    """Facts that were established only while the cause was explained."""

    @property
    def healthy(self) -> bool:
        """Nothing is wrong there."""
        return self.expected.primary is None

    def decoded(self) -> Facts:
        """The facts, checked."""
        return decode_facts(self.facts, place=self.id)


def given_directory() -> Path | None:
    """The directory `doctor` beside MILEAGE_DATA_DIR, with `cases` and `controls`; None: none."""
    value = os.environ.get("MILEAGE_DATA_DIR")
    if not value:
        return None
    directory = Path(value).resolve().parent / "doctor"
    return directory if (directory / "cases").is_dir() else None


def read_reports(directory: Path) -> list[Report]:
    """All reports of a directory and those below it, by id; a file holds one or a list of them.

    Raises:
        msgspec.ValidationError: a file holds something else.
    """
    found: list[Report] = []
    for path in sorted(directory.rglob("*.json")):
        document = msgspec.json.decode(path.read_bytes())
        if isinstance(document, list):
            found += msgspec.convert(document, list[Report])
        elif isinstance(document, dict) and "expected" in document:
            found.append(msgspec.convert(document, Report))
    return sorted(found, key=lambda report: report.id)


def without(facts: Mapping[str, Any], hidden: Callable[[str], bool]) -> dict[str, Any]:
    """The document without the facts that `hidden` says, asked with `section.name`, in every arm
    anew; the arms themselves stay. `logs` and `restarted_between_arms` are facts too."""
    kept: dict[str, Any] = dict(_kept(facts, hidden))
    if (logs := facts.get("logs")) is not None and not hidden("logs"):
        kept["logs"] = logs
    if (comparisons := facts.get("comparisons")) is not None:
        kept["comparisons"] = [_comparison(each, hidden) for each in comparisons]
    return kept


def _comparison(comparison: Mapping[str, Any], hidden: Callable[[str], bool]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    restarted = comparison.get("restarted_between_arms")
    if restarted is not None and not hidden("restarted_between_arms"):
        kept["restarted_between_arms"] = restarted
    kept["arms"] = [
        {**{k: arm[k] for k in ("arm", "current") if k in arm}, **dict(_kept(arm, hidden))}
        for arm in comparison["arms"]
    ]
    return kept


def _kept(
    document: Mapping[str, Any], hidden: Callable[[str], bool]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for section in SECTIONS:
        names = document.get(section, {})
        left = {name: names[name] for name in names if not hidden(f"{section}.{name}")}
        if left:
            yield section, left
