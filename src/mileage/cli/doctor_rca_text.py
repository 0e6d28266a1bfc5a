"""What a search for root causes says, in words: the cause, its effects, what goes with it."""

from __future__ import annotations

import datetime as dt

from mileage.doctor.rca.analyse import Analysis
from mileage.doctor.rca.anomalies import Anomaly
from mileage.doctor.rca.decay import Relation
from mileage.doctor.rca.events import Precedent
from mileage.doctor.rca.propagation import Effect
from mileage.doctor.rca.series import History, plain_name

__all__ = [
    "anomaly_text",
    "effect_text",
    "moment",
    "precedent_text",
    "rca_headline",
    "relation_text",
]

_RELATIONS = {
    "feeds": "gets its requests",
    "serves": "waits for it",
    "beside": "gets what it does not take",
    "rivals": "shares replicas with it",
    "common": "has it in common with the others",
}


def moment(at_utc_s: float) -> str:
    """A time in UTC."""
    return f"{dt.datetime.fromtimestamp(at_utc_s, dt.UTC):%Y-%m-%d %H:%M:%S}"


def rca_headline(analysis: Analysis, history: History) -> str:
    """The whole in one line."""
    if analysis.verdict == "not_enough_evidence":
        return f"Not enough evidence. It would take {analysis.missing[0]}."
    if analysis.verdict == "clear":
        return f"Clear: nothing in {analysis.series_looked_at} series was unusual."
    if not analysis.roots:
        return "Something was unusual, but nothing got worse."
    root = analysis.roots[0]
    told = f"{plain_name(root.node)}, from {moment(history.at_utc_s(root.start))} UTC on"
    if root.tied_with:
        others = ", ".join(plain_name(node) for node in root.tied_with)
        return f"{told} (score {root.score:.2f}); {others} cannot be told apart from it"
    return f"{told} (score {root.score:.2f})"


def anomaly_text(anomaly: Anomaly, history: History) -> str:
    """`ttft_p50_s 0.6 where 0.2 is usual, 10:00:00 to 10:40:00`."""
    start, end = (moment(history.at_utc_s(at)) for at in (anomaly.start, anomaly.end))
    names = " with ".join(anomaly.joint) if anomaly.joint else anomaly.name
    together = " (together)" if anomaly.joint else ""
    return (
        f"{names}{together} {anomaly.actual:.4g} where {anomaly.expected:.4g} is usual, "
        f"{start} to {end[11:]}"
    )


def effect_text(effect: Effect, step_s: float) -> str:
    """`replica b, 180 s later: gets what it does not take`."""
    later = f"{effect.lead_steps * step_s:.0f} s later" if effect.lead_steps else "at once"
    return f"{plain_name(effect.node)}, {later}: {_RELATIONS[effect.relation]}"


def precedent_text(before: Precedent) -> str:
    """`120 s before: configuration version 7, governor.policy changed (by chance 1%)`."""
    event = before.event
    number = f" version {event.version}" if event.version is not None else ""
    when = f"{before.lead_s:.0f} s before" if before.lead_s > 0 else "within the same point"
    return (
        f"{when}: {plain_name(event.node)}, {event.kind}{number}, {event.detail} "
        f"(so near by chance: {before.chance_ratio:.0%})"
    )


def relation_text(relation: Relation) -> str:
    """`replica a: decode_tokens_per_s falls with rss_bytes, 60 s later: r -0.8, ...`."""
    whose = (
        "" if relation.driver_node == relation.node else f" of {plain_name(relation.driver_node)}"
    )
    pair = f"{plain_name(relation.node)}: {relation.target} and {relation.driver}{whose}"
    if relation.found == "too_little":
        return f"{pair}: {relation.points} points in common are too few"
    if relation.found == "none":
        return f"{pair}: no relation seen in {relation.points} points"
    slope = f"{relation.slope:.3g} ({relation.slope_low:.3g} to {relation.slope_high:.3g})"
    lost = "" if relation.lost_ratio is None else f", {relation.lost_ratio:.0%} of it lost"
    if relation.found == "common_trend":
        return (
            f"{pair}: one falls while the other rises (r {relation.correlation:.2f}), as any two "
            "trends do; no relation beyond that"
        )
    return (
        f"{pair}: fall and rise together (r {relation.beyond_trend:.2f} beyond their trends, "
        f"{relation.lag_s:.0f} s apart), {slope} per unit{lost}"
    )
