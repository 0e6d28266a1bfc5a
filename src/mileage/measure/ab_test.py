"""AbResult: the verdict on two arms, from their slots, at one look at a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.measure.ab_failures import (
    FAILURES,
    any_failed,
    compare_failures,
    failure_guards,
    is_suspicious,
)
from mileage.measure.ab_guards import (
    AbFacts,
    Guard,
    Pair,
    blocks_depend,
    effect_drifts,
    order_matters,
    pairs_of,
    standing_guards,
)
from mileage.measure.arm_slot import DECIDING, METRICS, ArmSlot, SlotFigures, slot_figures
from mileage.measure.comparison import Comparison, compare
from mileage.measure.sequential import SequentialPlan

__all__ = ["AbResult", "AbVerdict", "ab_result", "ab_result_of_figures"]

AbVerdict = Literal["better", "worse", "mixed", "no_difference", "invalid"]
"""mixed: better in some of the metrics that decide, worse in others. An arm b that fails more often
is worse, whatever its latencies."""


class AbResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of two arms shows so far: arm b as seen from arm a."""

    verdict: AbVerdict
    text: str
    """The verdict in a sentence."""
    stop: bool
    """Whether the run has nothing more to tell: its plan ends, or all that decides is decided."""
    blocks: int
    deciding: tuple[str, ...]
    """The metrics that the verdict is about; the others are told beside it."""
    comparisons: dict[str, Comparison]
    """By metric: those that decide, then all others that were seen."""
    guards: tuple[Guard, ...]
    """Confounders that were found."""


def ab_result(
    slots: Sequence[ArmSlot],
    *,
    plan: SequentialPlan,
    slo: Slo,
    facts: AbFacts,
    deciding: Sequence[str] = DECIDING,
) -> AbResult:
    """`ab_result_of_figures` of slots that are given as records."""
    figures = [slot_figures(slot, slo) for slot in slots]
    return ab_result_of_figures(figures, plan=plan, facts=facts, deciding=deciding)


def ab_result_of_figures(
    slots: Sequence[SlotFigures],
    *,
    plan: SequentialPlan,
    facts: AbFacts,
    deciding: Sequence[str] = DECIDING,
) -> AbResult:
    """Judge two arms by their slots so far; `slots` in any order, blocks without a pair left out.

    A metric of `deciding` that was seen in no block does not decide, and the level is shared by
    the others. Where any request failed, the share that failed decides, too, and takes its part of
    the level. Raises ConfigError for a metric that is not known, or that has no better side.
    """
    for name in deciding:
        if name not in METRICS or METRICS[name].better is None:
            judged = sorted(name for name, metric in METRICS.items() if metric.better)
            raise ConfigError("metrics", name, f"one of {', '.join(judged)}")
    pairs = pairs_of(slots)
    seen = {
        name: _values(pairs, name)
        for name in (*dict.fromkeys(deciding), *(n for n in METRICS if n not in deciding))
    }
    seen = {name: arms for name, arms in seen.items() if _is_seen(arms)}
    latencies = tuple(name for name in dict.fromkeys(deciding) if name in seen)
    failing = any_failed(pairs)
    decide = tuple(dict.fromkeys((*latencies, *([FAILURES] if failing else []))))
    level = plan.alpha_at(max(1, len(pairs)), tests=max(1, len(decide)))
    comparisons = {
        name: compare(
            name, *arms, better=METRICS[name].better, level=level if name in decide else 0.05
        )
        for name, arms in seen.items()
    }
    guards = standing_guards(pairs, facts)
    failures = compare_failures(pairs, level=level) if failing else None
    if failures is not None:
        comparisons[FAILURES] = failures
    differs = failures is not None and failures.verdict in ("better", "worse")
    if differs:
        guards += failure_guards(pairs)
    elif not latencies:
        guards.append(Guard(name="nothing_seen", invalid=True, text="no metric was seen in both"))
    # An arm that fails more often is worse, whatever is wrong with the latencies of the rest.
    rests_on_failures = failures is not None and failures.verdict == "worse"
    for name in (name for name in latencies if name != FAILURES):
        guards += _metric_guards(name, pairs, seen[name], decides=not rests_on_failures)
    verdict, text = _verdict(comparisons, decide, guards)
    over = len(pairs) >= plan.blocks_max
    settled = verdict != "invalid" and _settled(comparisons, decide, plan.margin_ratio)
    fatal = any(g.invalid and g.name in ("restart", "generator_limited") for g in guards)
    return AbResult(
        verdict=verdict,
        text=text,
        stop=over or fatal or (settled and plan.is_look(len(pairs))),
        blocks=len(pairs),
        deciding=decide,
        comparisons=comparisons,
        guards=tuple(guards),
    )


_Arms = tuple[list[float | None], list[float | None]]


def _values(pairs: Sequence[Pair], name: str) -> _Arms:
    metric = METRICS[name]
    return [metric.of(p.a) for p in pairs], [metric.of(p.b) for p in pairs]


def _is_seen(arms: _Arms) -> bool:
    return any(a is not None and b is not None for a, b in zip(*arms, strict=True))


def _metric_guards(name: str, pairs: Sequence[Pair], arms: _Arms, *, decides: bool) -> list[Guard]:
    """Guards on how a metric's log ratio goes over blocks; it is named in their text."""
    whole = [
        (pair, math.log(b / a))
        for pair, a, b in zip(pairs, *arms, strict=True)
        if a is not None and b is not None and a > 0 and b > 0
    ]
    changes = np.array([change for _, change in whole])
    found = (
        order_matters([pair for pair, _ in whole], changes),
        effect_drifts(changes),
        blocks_depend(changes),
    )
    return [
        msgspec.structs.replace(
            guard, text=f"{name}: {guard.text}", invalid=guard.invalid and decides
        )
        for guard in found
        if guard is not None
    ]


def _verdict(
    comparisons: dict[str, Comparison], deciding: Sequence[str], guards: Sequence[Guard]
) -> tuple[AbVerdict, str]:
    fatal = [guard.text for guard in guards if guard.invalid]
    if fatal:
        return "invalid", f"No verdict: {'; '.join(dict.fromkeys(fatal))}."
    found = [comparisons[name] for name in deciding]
    failures = [c for c in found if c.metric == FAILURES]
    others = [c for c in found if c.metric != FAILURES]
    changed = [c for c in (*failures, *others) if c.verdict in ("better", "worse")]
    if not changed:
        if all(c.verdict == "invalid" for c in others or failures):
            return "invalid", f"No verdict: {' '.join(c.text for c in found)}"
        return "no_difference", " ".join(c.text for c in found)
    words = {c.verdict for c in changed}
    if any(c.verdict == "worse" for c in failures):
        words = {"worse"}
    verdict: AbVerdict = "mixed" if len(words) == 2 else words.pop()
    return verdict, " ".join(c.text for c in changed)


def _settled(
    comparisons: dict[str, Comparison], deciding: Sequence[str], margin_ratio: float
) -> bool:
    """Whether no metric that decides may still turn out to be harmed by more than the margin.

    One that differs is decided; one whose interval rules out a change for the worse beyond the
    margin cannot spoil the verdict; and where none differs, all have to rule out any such change.
    An arm b that fails more often is worse whatever else is found; where one may do so, or nothing
    else decides, the run goes on.
    """
    failures = comparisons[FAILURES] if FAILURES in deciding else None
    if failures is not None and failures.verdict == "worse":
        return True
    if failures is not None and failures.verdict == "no_difference":
        alone = len(deciding) == 1
        if alone or is_suspicious(failures):
            return False
    found = [comparisons[name] for name in deciding]
    differs = any(c.verdict in ("better", "worse") for c in found)
    return all(_is_settled(c, margin_ratio, both=not differs) for c in found)


def _is_settled(c: Comparison, margin_ratio: float, *, both: bool) -> bool:
    if c.verdict in ("better", "worse") or c.ci95 is None:
        return c.verdict != "invalid"
    low, high = c.ci95
    sinks, grows = low >= 1.0 / (1.0 + margin_ratio), high <= 1.0 + margin_ratio
    if both:
        return sinks and grows
    return grows if c.better == "lower" else sinks
