"""What the doctor's answers to trouble reports are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from benchmarks.support.doctor_reports import Report, without
from mileage.doctor.facts import decode_facts
from mileage.doctor.finding import Diagnosis
from mileage.doctor.run import diagnose

__all__ = ["SHARES", "Answer", "answer", "answers", "bare", "hidden_figures", "summary"]

SHARES = (0.2, 0.4, 0.6)
"""Of the facts, hidden at random."""

First = Literal["right", "true", "wrong", "undecided"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The doctor's answer to one report."""

    report: Report
    verdict: str
    causes: tuple[str, ...]
    """Of all findings, the first first."""
    loud: tuple[str, ...]
    """Causes of those above severity info."""

    @property
    def first(self) -> First:
        """What the first finding is: right; true, but not what was asked for; wrong; or there is
        none above info, and nothing was claimed."""
        expected = self.report.expected
        if not self.causes:
            return "undecided"
        if self.causes[0] in expected.right:
            return "right"
        if self.causes[0] in expected.also_ok:
            return "true"
        return "wrong" if self.causes[0] in self.loud else "undecided"

    @property
    def among_two(self) -> bool:
        """A right cause is the first or the second finding."""
        return not self.report.expected.right.isdisjoint(self.causes[:2])

    @property
    def harm(self) -> tuple[str, ...]:
        """Causes claimed that must not be; `no_finding` where silence is the harm."""
        forbidden = self.report.must_not
        claimed = tuple(cause for cause in self.loud if cause in forbidden)
        silent = not self.loud and "no_finding" in forbidden
        return (*claimed, *(("no_finding",) if silent else ()))

    @property
    def false_alarm(self) -> bool:
        """Something above info is claimed of a healthy deployment."""
        return self.report.healthy and bool(self.loud)

    @property
    def failed(self) -> bool:
        """Not as expected in any way that counts."""
        if self.harm or self.false_alarm:
            return True
        return not self.report.healthy and self.first != "right"


def answer(report: Report, facts: dict[str, Any] | None = None) -> Answer:
    """Ask the doctor, with the facts of the report or with fewer of them."""
    document = report.facts if facts is None else facts
    return _told(report, diagnose(decode_facts(document, place=report.id)))


def answers(reports: Iterable[Report]) -> list[Answer]:
    """Ask about each report with all its facts."""
    return [answer(report) for report in reports]


def bare(reports: Iterable[Report]) -> list[Answer]:
    """Ask about each without what was established only while the cause was explained."""
    return [
        answer(report, without(report.facts, set(report.from_diagnosis).__contains__))
        for report in reports
    ]


def summary(asked: Sequence[Answer]) -> dict[str, object]:
    """The figures of a set: shares of the sick, counts of the harmful and of false alarms."""
    sick = [each for each in asked if not each.report.healthy]
    return {
        "cases": len(sick),
        "controls": len(asked) - len(sick),
        "top1": _share(sick, lambda each: each.first == "right"),
        "top2": _share(sick, lambda each: each.among_two),
        "wrong": _share(sick, lambda each: each.first == "wrong"),
        "harmful": sum(bool(each.harm) for each in asked),
        "false_alarms": sum(each.false_alarm for each in asked),
    }


def hidden_figures(reports: Sequence[Report], *, draws: int, seed: int) -> dict[str, object]:
    """For each share of facts hidden at random: what the first findings of the sick are then, in
    shares of all draws, and how many healthy ones are called sick."""
    figures: dict[str, object] = {}
    for share in SHARES:
        hidden = _drawn(share, Random(f"{seed}/{share}"))
        asked = [
            answer(report, without(report.facts, hidden))
            for _ in range(draws)
            for report in reports
        ]
        sick = [each for each in asked if not each.report.healthy]
        healthy = [each for each in asked if each.report.healthy]
        silent = [each for each in sick if each.first == "undecided"]
        figures[f"{share:.0%}"] = {
            "right": _share(sick, lambda each: each.first == "right"),
            "true": _share(sick, lambda each: each.first == "true"),
            "wrong": _share(sick, lambda each: each.first == "wrong"),
            "not_enough_evidence": _of(sick, silent, "not_enough_evidence"),
            "clear": _of(sick, silent, "clear"),
            "harmful": _share(sick, lambda each: bool(each.harm)),
            "false_alarms": _share(healthy, lambda each: each.false_alarm),
        }
    return figures


def _drawn(share: float, random: Random) -> Callable[[str], bool]:
    return lambda _: random.random() < share


def _told(report: Report, diagnosis: Diagnosis) -> Answer:
    findings = diagnosis.findings
    return Answer(
        report,
        diagnosis.verdict,
        tuple(finding.cause for finding in findings),
        tuple(finding.cause for finding in findings if finding.severity != "info"),
    )


def _share(asked: Sequence[Answer], met: Callable[[Answer], bool]) -> float | None:
    return round(sum(map(met, asked)) / len(asked), 4) if asked else None


def _of(all_asked: Sequence[Answer], chosen: Sequence[Answer], verdict: str) -> float | None:
    if not all_asked:
        return None
    return round(sum(each.verdict == verdict for each in chosen) / len(all_asked), 4)
