"""Verdict: what one dimension's rule says of a window, how surely, and on what evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from mileage.measure.bottleneck_config import BottleneckConfig
from mileage.measure.bottleneck_rules import Answer, Clause, Dimension, Figures, ask
from mileage.measure.quantiles import quantile
from mileage.measure.telemetry import Moment

__all__ = ["Confidence", "Evidence", "Verdict", "verdict_of"]

Confidence: TypeAlias = Literal["high", "medium", "low"]
_LEVELS: tuple[Confidence, ...] = ("high", "medium", "low")
_FIRM_HELD = 0.8
_FIRM_SAMPLES = 50
_TENSOR_QUIET = 0.10
_LINKS = {"nvlink_ratio", "pcie_ratio"}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of a rule over the window: what was seen, and what was asked of it."""

    figure: str
    comparison: Literal[">", "<"]
    threshold: float
    mean: float | None
    """None: never known."""
    p95: float | None
    met_ratio: float | None
    """Of the looks in which it was known."""
    samples: int
    """Looks in which it was known."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one dimension's rule says of a window. `held` None: it cannot be told."""

    dimension: Dimension
    held: bool | None
    held_ratio: float | None
    """Of the looks in which the rule could be told."""
    samples: int
    """Looks in which the rule could be told."""
    confidence: Confidence | None
    """None where the rule did not hold."""
    evidence: tuple[Evidence, ...]
    unknown: tuple[str, ...]
    """Figures that were missing where the rule could not be told."""
    notes: tuple[str, ...]


def verdict_of(
    dimension: Dimension, moments: Sequence[Moment], config: BottleneckConfig, figures: Figures
) -> Verdict:
    """What one dimension's rule says of these looks."""
    answers = [ask(dimension, moment, config, figures) for moment in moments]
    told = [answer for answer in answers if answer.held is not None]
    times_held = sum(bool(answer.held) for answer in told)
    held = _decided(times_held, len(told), len(answers), config)
    held_ratio = times_held / len(told) if told else None
    shown = [a for a in answers if a.held] if held else answers
    asked = (c for a in shown for c in (a.decisive if held else a.clauses))
    evidence = _evidence(answers, {(c.figure, c.threshold) for c in asked})
    notes = _notes(dimension, shown, moments) if held else ()
    unknown = [] if held is not None else _unknown(answers)
    if held is None and not unknown:
        notes = (f"looks: {len(told)}, at least {config.samples_min} are needed",)
    return Verdict(
        dimension=dimension,
        held=held,
        held_ratio=held_ratio,
        samples=len(told),
        confidence=_confidence(held_ratio, shown, len(told)) if held else None,
        evidence=evidence,
        unknown=tuple(unknown),
        notes=notes,
    )


def _decided(held: int, told: int, looks: int, config: BottleneckConfig) -> bool | None:
    """Whether the rule held often enough, whatever it was in the looks that do not tell."""
    if told < config.samples_min:
        return None
    if held >= config.held_min * looks:
        return True
    return False if held + looks - told < config.held_min * looks else None


def _unknown(answers: Sequence[Answer]) -> list[str]:
    open_ = [answer for answer in answers if answer.held is None]
    return list(dict.fromkeys(c.figure for a in open_ for c in a.clauses if c.value is None))


def _confidence(held_ratio: float | None, shown: Sequence[Answer], samples: int) -> Confidence:
    """One level less for each of: shares of time instead of counters, a rule that did not hold most
    of the time, few looks, and a guard that is not known."""
    faults = (
        2 * sum(answer.by_time for answer in shown) > len(shown),
        held_ratio is not None and held_ratio < _FIRM_HELD,
        samples < _FIRM_SAMPLES,
        any(clause.guard and clause.value is None for a in shown for clause in a.clauses),
    )
    return _LEVELS[min(len(_LEVELS) - 1, sum(faults))]


def _evidence(answers: Sequence[Answer], wanted: set[tuple[str, float]]) -> tuple[Evidence, ...]:
    """Over all looks, also those in which the rule did not hold: nothing is picked."""
    clauses: dict[tuple[str, float, bool], list[Clause]] = {}
    for answer in answers:
        for clause in answer.clauses:
            if (clause.figure, clause.threshold) in wanted:
                key = clause.figure, clause.threshold, clause.above
                clauses.setdefault(key, []).append(clause)
    found = []
    for (figure, threshold, above), each in clauses.items():
        values = [clause.value for clause in each if clause.value is not None]
        met = sum(bool(clause.met) for clause in each)
        found.append(
            Evidence(
                figure=figure,
                comparison=">" if above else "<",
                threshold=threshold,
                mean=sum(values) / len(values) if values else None,
                p95=quantile(values, 0.95),
                met_ratio=met / len(values) if values else None,
                samples=len(values),
            )
        )
    return tuple(found)


def _notes(
    dimension: Dimension, shown: Sequence[Answer], moments: Sequence[Moment]
) -> tuple[str, ...]:
    notes = []
    if dimension == "compute" and any(answer.by_time for answer in shown):
        notes.append(
            "GPU_UTIL is near 100 % as soon as any kernel runs all the time, with a single request "
            "too: this may be a GPU that hardly works. SM_ACTIVE would tell."
        )
    tensor = [m.sample.tensor_active_ratio for m in moments]
    known = [ratio for ratio in tensor if ratio is not None]
    if dimension == "compute" and known and sum(known) / len(known) < _TENSOR_QUIET:
        notes.append(
            "The multiprocessors have work, but the tensor cores hardly do: small kernels, or much "
            "besides matrix products; more arithmetic would still fit."
        )
    open_ = {c.figure for a in shown for c in a.clauses if c.guard and c.value is None}
    notes += [f"{link} is not known: it could be the links instead." for link in _LINKS & open_]
    if any(moment.sample.sharing is not None for moment in moments):
        notes.append("The GPU is shared: the figures are of all its sharers, or of one instance.")
    return tuple(notes)
