"""What `mileage doctor --json` prints: verdict, findings with evidence, outcomes of rules."""

from __future__ import annotations

from typing import Any

import msgspec

from mileage import __version__
from mileage.doctor.finding import Diagnosis, Finding

__all__ = ["doctor_document"]


def doctor_document(
    diagnosis: Diagnosis, facts: dict[str, Any], notes: dict[str, str], *, every_rule: bool = False
) -> dict[str, Any]:
    """The document. `facts`: what it rests on; `notes`: source -> why it told nothing."""
    tree: dict[str, Any] = {
        "verdict": diagnosis.verdict,
        "findings": [_finding(found, diagnosis) for found in diagnosis.findings],
        "missing": list(diagnosis.missing),
        "sources": notes,
        "facts": facts,
        "version": __version__,
    }
    if every_rule:
        tree["rules"] = msgspec.to_builtins(diagnosis.rules)
    return tree


def _finding(found: Finding, diagnosis: Diagnosis) -> dict[str, Any]:
    loss, gain = found.loss_usd_per_month, found.expected_gain
    return {
        "rule": found.rule,
        "cause": found.cause,
        "title": found.title,
        "severity": found.severity,
        "confidence": found.confidence,
        "evidence": msgspec.to_builtins(found.evidence),
        "loss_usd_per_month": None if loss is None else {"low": loss.low, "high": loss.high},
        "loss_basis": None if loss is None else loss.basis,
        "loss_unknown_because": found.loss_unknown_because,
        "expected_gain": None if gain is None else msgspec.to_builtins(gain),
        "gain_unknown_because": found.gain_unknown_because,
        "remedy": found.remedy,
        "risk": found.risk,
        "changes": msgspec.to_builtins(found.changes),
        "proof_command": found.proof_command,
        "consequence_of": found.consequence_of,
        "consequences": [
            other.rule for other in diagnosis.findings if other.consequence_of == found.rule
        ],
    }
