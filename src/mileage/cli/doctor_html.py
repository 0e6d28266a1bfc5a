"""The page of a diagnosis: `mileage doctor --html`."""

from __future__ import annotations

from mileage import __version__
from mileage.cli.doctor_source import Gathered
from mileage.cli.doctor_text import (
    effects,
    evidence_rows,
    gain_basis,
    gains,
    headline,
    loss_basis,
    money,
    roots,
    shown_value,
)
from mileage.dashboard.doctor_report import DoctorCause, DoctorPage, DoctorSeries, doctor_page
from mileage.doctor.facts import Facts, decode_facts
from mileage.doctor.finding import Diagnosis, Finding
from mileage.doctor.quantity import Quantity

__all__ = ["doctor_html"]

_SERIES_MAX = 12
_PLAIN_UNITS = ("count", "ratio", "1e9", "flag")
_MEASURED = 3
"""A line of fewer points shows nothing."""


def doctor_html(diagnosis: Diagnosis, gathered: Gathered) -> str:
    """The page as HTML."""
    facts = decode_facts(gathered.document)
    first = roots(diagnosis)[0] if diagnosis.findings else None
    tiles = [("Verdict", diagnosis.verdict.replace("_", " "))]
    if first is not None:
        tiles += [
            ("Costs per month", money(first.loss_usd_per_month)),
            ("Sure", f"{first.confidence:.0%}"),
            ("Causes", str(len(roots(diagnosis)))),
        ]
    tiles.append(("Facts known", str(len(facts.values))))
    notes = tuple(gathered.notes.items())
    looked_at = (("Looked at", gathered.url),) if gathered.url is not None else ()
    return doctor_page(
        DoctorPage(
            verdict=headline(diagnosis),
            facts=(*looked_at, *notes),
            tiles=tuple(tiles),
            causes=tuple(_cause(found, diagnosis) for found in diagnosis.findings),
            series=_series(facts),
            known=_known(facts),
            missing=diagnosis.missing,
            footer=f"mileage {__version__}",
        )
    )


def _cause(found: Finding, diagnosis: Diagnosis) -> DoctorCause:
    return DoctorCause(
        title=found.title,
        label=f"{found.rule} {found.cause}",
        severity=found.severity,
        confidence=found.confidence,
        loss=money(found.loss_usd_per_month),
        loss_basis=loss_basis(found),
        gain=", ".join(gains(found)),
        gain_basis=gain_basis(found),
        evidence=tuple(evidence_rows(found)),
        remedy=found.remedy,
        effects=tuple(effects(found)),
        risk=found.risk,
        proof_command=found.proof_command,
        consequences=tuple(
            other.title for other in diagnosis.findings if other.consequence_of == found.rule
        ),
        consequence=found.consequence_of is not None,
    )


def _series(facts: Facts) -> tuple[DoctorSeries, ...]:
    found = []
    for key, value in facts.values.items():
        if not isinstance(value, Quantity) or len(value.series) < _MEASURED:
            continue
        times = tuple(
            float(number) if at_s is None else at_s for number, at_s in enumerate(value.times_s)
        )
        found.append(DoctorSeries(name=key, times_s=times, values=_middles(value)))
    return tuple(found[:_SERIES_MAX])


def _middles(value: Quantity) -> tuple[float, ...]:
    return tuple(part.middle for part in value.series)


def _known(facts: Facts) -> tuple[tuple[str, str], ...]:
    rows = []
    for key, value in sorted(facts.values.items()):
        if isinstance(value, Quantity):
            unit = "" if value.unit in _PLAIN_UNITS else f" {value.unit}"
            told = "not set" if value.unset else f"{shown_value(value.plain())}{unit}"
        else:
            told = "not set" if value is None else shown_value(value)
        rows.append((key, told))
    return tuple(rows)
