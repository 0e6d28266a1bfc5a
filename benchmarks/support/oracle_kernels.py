"""Compares steps of the cost model with the oracle's, as a whole and by kinds of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.support.oracle_client import Answer, Kernel, Step, seconds
from benchmarks.support.oracle_setups import REQUESTS_MAX, STEP_TOKENS_MAX, Setup
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.roofline import report

__all__ = [
    "KINDS",
    "Compared",
    "Spread",
    "compare",
    "gathered",
    "mdape",
    "oracle_kinds",
    "our_kinds",
    "spread",
]

_OURS = {
    "projections": "matrices",
    "feed-forward": "matrices",
    "LM head": "matrices",
    "shared experts": "experts",
    "gate": "experts",
    "experts": "experts",
    "decode attention": "attention",
    "prefill attention": "attention",
    "all-reduce": "links",
    "expert exchange": "links",
    "pipeline send": "links",
    "small kernels": "small kernels",
    "host": "host",
}
_LINKS = ("_ar", "allreduce", "dispatch", "p2p")
_EXPERTS = ("moe", "router", "shared")
KINDS = ("matrices", "experts", "attention", "links", "small kernels", "host")


class Spread(NamedTuple):
    """Of ratios: the median, and what four of five are within."""

    median: float
    low: float
    high: float


@dataclass(slots=True)
class Compared:
    """One set-up: ours over the oracle's, by the kind of step and of operator."""

    setup: Setup
    ratios: dict[str, list[float]] = field(default_factory=dict)
    """Of whole steps."""
    kinds: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """Seconds of all steps of a kind that one kind of operators takes: ours, and the oracle's."""
    measured: list[float] = field(default_factory=list)
    """Share of each step that the oracle has from measured kernels."""
    missing: int = 0
    """Steps that the oracle has no kernels for."""
    reason: str | None = None


def compare(setup: Setup, steps: Sequence[Step], answer: Answer) -> Compared:
    """Every step that the oracle answered."""
    deployment = setup.deployment()
    table = deployment.step_table(REQUESTS_MAX, STEP_TOKENS_MAX)
    found = Compared(setup, reason=answer.reason)
    for step, kernels in zip(steps, answer.steps, strict=True):
        if kernels is None:
            found.missing += 1
            continue
        tokens = step.prompt_tokens
        ours_s = table.step_s(
            step.decoding, step.decoding * step.context_tokens, tokens, tokens * (tokens + 1) / 2
        )
        whole_s = seconds(kernels)
        found.ratios.setdefault(step.kind, []).append(ours_s / whole_s)
        known = sum(k.seconds for k in kernels if k.source != "empirical")
        found.measured.append(known / whole_s)
        ours, theirs = our_kinds(deployment, step), oracle_kinds(kernels)
        for kind in KINDS:
            before = found.kinds.get((step.kind, kind), (0.0, 0.0))
            both = (before[0] + ours.get(kind, 0.0), before[1] + theirs.get(kind, 0.0))
            found.kinds[step.kind, kind] = both
    return found


def our_kinds(deployment: Deployment, step: Step) -> dict[str, float]:
    """Seconds of a step by the kind of operators, divided as the oracle does.

    Of MLA projections count as attention, and a mixture's dense layers as experts.
    """
    found: dict[str, float] = {}
    read = report(
        deployment,
        batch=step.decoding,
        context_tokens=step.context_tokens or step.prompt_tokens,
        prefill_tokens=step.prompt_tokens,
    )
    for operator in read.operators:
        kind = _OURS[operator.name]
        if deployment.model.mla and operator.name == "projections":
            kind = "attention"
        if deployment.model.experts and operator.name == "feed-forward":
            kind = "experts"
        found[kind] = found.get(kind, 0.0) + operator.time_s
    return found


def oracle_kinds(kernels: Sequence[Kernel]) -> dict[str, float]:
    """The same of the oracle's kernels. It has none of the host."""
    found: dict[str, float] = {}
    for kernel in kernels:
        kind = _kind(kernel.name)
        found[kind] = found.get(kind, 0.0) + kernel.seconds
    return found


def _kind(name: str) -> str:
    if "attention" in name or "mla" in name:
        return "attention"
    if any(part in name for part in _LINKS):
        return "links"
    if any(part in name for part in _EXPERTS):
        return "experts"
    return "matrices" if name.endswith("_gemm") else "small kernels"


def spread(ratios: Sequence[float]) -> Spread | None:
    """None without ratios."""
    if not len(ratios):
        return None
    low, median, high = np.quantile(ratios, (0.1, 0.5, 0.9)).tolist()
    return Spread(median, low, high)


def mdape(ratios: Sequence[float]) -> float | None:
    """Median of |ours / the oracle's - 1|; None without ratios."""
    return float(np.median(np.abs(np.array(ratios) - 1.0))) if len(ratios) else None


def gathered(compared: Sequence[Compared]) -> Mapping[str, list[float]]:
    """Ratios of all set-ups, by the kind of step."""
    found: dict[str, list[float]] = {"decode": [], "prefill": [], "mixed": []}
    for each in compared:
        for kind, ratios in each.ratios.items():
            found[kind] += ratios
    return found
