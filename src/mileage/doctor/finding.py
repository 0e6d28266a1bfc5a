"""A finding: a cause with its evidence, what it costs, what to do and how to prove it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mileage.doctor.opinion import Change, Severity

__all__ = [
    "Diagnosis",
    "EvidenceLine",
    "Finding",
    "Gain",
    "GainMetric",
    "Loss",
    "RuleOutcome",
    "Verdict",
]

Verdict = Literal["finding", "clear", "not_enough_evidence"]


GainMetric = Literal["throughput_ratio", "ttft_p99_ratio", "itl_p99_ratio", "cost_ratio"]
"""After the remedy over before it: output tokens per second and card; p99 of the time to first
token; median over requests of the p99 of a request's own gaps; cost of the GPUs for the same work.
"""


class EvidenceLine(msgspec.Struct, frozen=True):
    """`signal` has `value`, and that meets (or, where it speaks against, not) `limit`."""

    signal: str
    value: Any
    limit: str
    weight: float
    """Log odds that it adds; 0 where it belongs to another line."""


class Loss(msgspec.Struct, frozen=True):
    """Dollars per month at the present load, and what the figure rests on."""

    low: float
    high: float
    basis: str


class Gain(msgspec.Struct, frozen=True):
    """What the remedy is expected to bring: `metric` is multiplied by `low` to `high`."""

    metric: GainMetric
    low: float
    high: float
    basis: str


class Finding(msgspec.Struct, frozen=True):
    """One cause that is likelier than not."""

    rule: str
    cause: str
    title: str
    severity: Severity
    confidence: float
    evidence: tuple[EvidenceLine, ...]
    loss_usd_per_month: Loss | None
    remedy: str
    changes: tuple[Change, ...]
    proof_command: str
    consequence_of: str | None = None
    """Rule of the finding that brings this one about."""
    risk: str = ""
    """What the remedy can break or cost."""
    expected_gain: tuple[Gain, ...] | None = None
    gain_unknown_because: str | None = None
    """Why there is no `expected_gain`."""
    loss_unknown_because: str | None = None
    """Why there is no `loss_usd_per_month`."""


class RuleOutcome(msgspec.Struct, frozen=True):
    """What one rule said, for those who ask why something is not a finding."""

    rule: str
    cause: str
    outcome: Verdict
    missing: tuple[str, ...]


class Diagnosis(msgspec.Struct, frozen=True):
    """Findings, primary first, and the outcome of every rule."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    rules: tuple[RuleOutcome, ...]
    missing: tuple[str, ...]
    """Facts that would help most: those that most of the undecided rules ask for, first."""
