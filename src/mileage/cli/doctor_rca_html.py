"""The page of a search for root causes: `mileage doctor rca --html`."""

from __future__ import annotations

from typing import Final

from mileage import __version__
from mileage.cli.doctor_rca_text import (
    anomaly_text,
    effect_text,
    moment,
    precedent_text,
    rca_headline,
    relation_text,
)
from mileage.dashboard.doctor_report import DoctorCause, DoctorPage, DoctorSeries, doctor_page
from mileage.doctor.rca.analyse import Analysis
from mileage.doctor.rca.propagation import Root
from mileage.doctor.rca.series import History, plain_name

__all__ = ["rca_html"]

_CAUSES_MAX: Final = 5
_SERIES_MAX: Final = 12


def rca_html(analysis: Analysis, history: History) -> str:
    """The page as HTML."""
    roots = analysis.roots[:_CAUSES_MAX]
    since, until = history.at_utc_s(history.first), history.at_utc_s(history.points)
    known = [(plain_name(each.node), anomaly_text(each, history)) for each in analysis.anomalies]
    known += [("relation", relation_text(each)) for each in analysis.relations]
    known += [
        (f"event, {moment(each.at_utc_s)}", f"{plain_name(each.node)}: {each.detail}")
        for each in history.events
    ]
    return doctor_page(
        DoctorPage(
            verdict=rca_headline(analysis, history),
            facts=(
                ("Searched (UTC)", f"{moment(since)} to {moment(until)}"),
                ("By", "; ".join(analysis.methods)),
                *(("Note", note) for note in analysis.notes),
            ),
            tiles=(
                ("Verdict", analysis.verdict.replace("_", " ")),
                ("Anomalies", str(len(analysis.anomalies))),
                ("Series", str(analysis.series_looked_at)),
                ("Events", str(len(history.events))),
            ),
            causes=tuple(_cause(root, analysis, history) for root in roots),
            series=_series(analysis, history),
            known=tuple(known),
            missing=analysis.missing,
            footer=f"mileage {__version__}",
        )
    )


def _cause(root: Root, analysis: Analysis, history: History) -> DoctorCause:
    first = root is analysis.roots[0]
    evidence = [(name, f"{value:.2f}", "", "for") for name, value in root.parts]
    evidence += [("explains", effect_text(each, history.step_s), "", "") for each in root.effects]
    evidence += [("explained by", plain_name(node), "", "against") for node in root.explained_by]
    if first:
        evidence += [("before it", precedent_text(each), "", "") for each in analysis.before]
    actions = analysis.actions if first else ()
    commands = [each.command for each in actions if each.command is not None]
    return DoctorCause(
        title=plain_name(root.node),
        label=plain_name(root.node),
        severity="warning" if first else "info",
        confidence=root.score,
        loss="unknown",
        loss_basis="",
        evidence=tuple(evidence),
        remedy="; ".join(f"{each.text} ({each.why})" for each in actions) or "See the first cause.",
        proof_command="\n".join(commands) or "mileage doctor rca",
        consequences=tuple(plain_name(each.node) for each in root.effects),
        consequence=bool(root.explained_by),
    )


def _series(analysis: Analysis, history: History) -> tuple[DoctorSeries, ...]:
    """Those with anomalies, the earliest first."""
    wanted = list(dict.fromkeys((each.node, each.name) for each in analysis.anomalies))
    by_name = {(each.node, each.name): each for each in history.series}
    found = []
    for key in wanted[:_SERIES_MAX]:
        values = by_name[key].array()[history.first :]
        points = [(at * history.step_s, float(v)) for at, v in enumerate(values) if v == v]
        found.append(
            DoctorSeries(
                name=f"{plain_name(key[0])}: {key[1]}",
                times_s=tuple(at for at, _ in points),
                values=tuple(value for _, value in points),
            )
        )
    return tuple(found)
