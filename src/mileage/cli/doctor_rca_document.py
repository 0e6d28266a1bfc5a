"""What `mileage doctor rca --json` prints."""

from __future__ import annotations

from typing import Any

import msgspec

from mileage import __version__
from mileage.cli.doctor_rca_text import rca_headline
from mileage.doctor.rca.analyse import Analysis
from mileage.doctor.rca.anomalies import Anomaly
from mileage.doctor.rca.propagation import Root
from mileage.doctor.rca.series import History

__all__ = ["rca_document"]


def rca_document(analysis: Analysis, history: History) -> dict[str, Any]:
    """The document. Times are seconds since 1970."""
    return {
        "verdict": analysis.verdict,
        "headline": rca_headline(analysis, history),
        "missing": analysis.missing,
        "roots": [_root(each, history) for each in analysis.roots],
        "before": [msgspec.to_builtins(each) for each in analysis.before],
        "actions": [msgspec.to_builtins(each) for each in analysis.actions],
        "anomalies": [_anomaly(each, history) for each in analysis.anomalies],
        "relations": [msgspec.to_builtins(each) for each in analysis.relations],
        "capacity": msgspec.to_builtins(analysis.capacity),
        "events": [msgspec.to_builtins(each) for each in history.events],
        "topology": [list(edge) for edge in analysis.edges],
        "window": {
            "start_utc_s": history.start_utc_s,
            "since_utc_s": history.at_utc_s(history.first),
            "until_utc_s": history.at_utc_s(history.points),
            "step_s": history.step_s,
        },
        "methods": analysis.methods,
        "series_looked_at": analysis.series_looked_at,
        "series_too_short": analysis.series_too_short,
        "notes": analysis.notes,
        "version": __version__,
    }


def _anomaly(anomaly: Anomaly, history: History) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(anomaly)
    return told | {
        "start_utc_s": history.at_utc_s(anomaly.start),
        "end_utc_s": history.at_utc_s(anomaly.end),
        "size_ratio": anomaly.size_ratio,
    }


def _root(root: Root, history: History) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(root)
    return told | {
        "parts": dict(root.parts),
        "start_utc_s": history.at_utc_s(root.start),
        "end_utc_s": history.at_utc_s(root.end),
        "effects": [
            msgspec.to_builtins(each) | {"lead_s": each.lead_steps * history.step_s}
            for each in root.effects
        ],
    }
