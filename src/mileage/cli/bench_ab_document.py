"""What `mileage bench ab --json` prints: every metric of both arms, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mileage import __version__
from mileage.cli.bench_ab_plan import AbPlan
from mileage.cli.bench_ab_run import AbRun
from mileage.cli.bench_result import INTERRUPTED, LIMITED
from mileage.loadgen.arms_pooled import pooled_figures
from mileage.loadgen.arms_slot import Slot
from mileage.loadgen.arms_slots import Arm
from mileage.measure.arm_slot import METRICS
from mileage.measure.comparison import Comparison
from mileage.measure.server_use import ServerUse
from mileage.wire.url import display_url

__all__ = ["HEADLINES", "ab_document", "ab_exit_code"]

HEADLINES: Final = (
    "ttft_p99_s",
    "itl_p99_s",
    "e2e_p99_s",
    "output_tokens_per_s",
    "goodput_rps",
    "failed_ratio",
    "utilisation_ratio",
    "memory_bytes",
    "usd_per_million_tokens",
)
"""Told side by side whatever else is: where one was not seen, why."""
_ARMS: Final[tuple[Arm, Arm]] = ("a", "b")
_OF_USE: Final = {
    "utilisation_ratio": "utilisation_ratio",
    "memory_bytes": "memory_bytes",
    "energy_j_per_token": "energy_j",
}


def ab_document(plan: AbPlan, ab: AbRun) -> dict[str, Any]:
    """The document. What was not seen is null."""
    result = ab.result
    return {
        "verdict": result.verdict,
        "reason": result.text,
        "enough_evidence": _is_evidence(plan, ab),
        "deciding": list(result.deciding),
        "pairs": result.blocks,
        "metrics": {name: _metric(name, plan, ab) for name in METRICS},
        "guards": msgspec.to_builtins(result.guards),
        "notes": ab.notes,
        "outlook": msgspec.to_builtins(ab.outlook),
        "arms": {arm: _arm(arm, plan, ab) for arm in _ARMS},
        "slots": [_slot(slot) for slot in ab.run.slots],
        "plan": {
            "mode": plan.mode,
            "arms_share": plan.sharing,
            "slot_s": plan.slot_s,
            "wash_out_s": None if plan.slot_requests else plan.load.warmup_s,
            "slot_requests": plan.slot_requests,
            "wash_out_requests": plan.wash_out_requests or None,
            "duration_max_s": plan.duration_max_s,
            "effect_ratio": plan.effect_ratio,
            "power": plan.power,
            "same_prompts": not plan.share_cache,
            **msgspec.to_builtins(ab.plan),
        },
        "workload": ab.workload,
        "load": msgspec.to_builtins(plan.load),
        "targets": {"ttft_s": plan.slo.ttft_s, "itl_s": plan.slo.itl_s},
        "elapsed_s": ab.elapsed_s,
        "interrupted": ab.run.stopped,
        "error": ab.run.error,
        "restore_error": ab.run.restore_error,
        "version": __version__,
    }


def ab_exit_code(document: Mapping[str, Any]) -> int:
    """0 better, or no difference where one of the size that was asked for would have been seen;
    1 worse, or settings that are not what they were; 3 no verdict, or too little evidence."""
    if document["restore_error"] is not None or document["verdict"] in ("worse", "mixed"):
        return 1
    if document["verdict"] == "invalid" and document["interrupted"]:
        return INTERRUPTED
    return 0 if document["enough_evidence"] else LIMITED


def _is_evidence(plan: AbPlan, ab: AbRun) -> bool:
    if ab.result.verdict == "invalid":
        return False
    if ab.result.verdict != "no_difference":
        return True
    return all(
        _is_seen(ab.result.comparisons[name], plan.effect_ratio) for name in ab.result.deciding
    )


def _is_seen(found: Comparison, effect_ratio: float) -> bool:
    """A change of this size is ruled out, or would have been seen in four runs of five."""
    if found.ci95 is None:  # equal to the last digit, in every pair
        return found.verdict == "no_difference"
    low, high = found.ci95
    ruled_out = 1.0 / (1.0 + effect_ratio) <= low and high <= 1.0 + effect_ratio
    return ruled_out or (
        found.detectable_ratio is not None and found.detectable_ratio <= effect_ratio
    )


def _metric(name: str, plan: AbPlan, ab: AbRun) -> dict[str, Any]:
    found = ab.result.comparisons.get(name)
    if found is not None:
        tree: dict[str, Any] = msgspec.to_builtins(found)
        tree.pop("metric")
        return {**tree, "basis": _basis(name, ab.run.slots)}
    return {
        **dict.fromkeys(("a", "b", "ratio", "ci95", "ci95_alone", "p_value", "verdict")),
        "better": METRICS[name].better,
        "blocks": 0,
        "text": _why_missing(name, plan, ab.run.slots),
        "basis": None,
    }


def _uses(slots: list[Slot]) -> list[ServerUse]:
    return [slot.use for slot in slots if slot.use is not None]


def _basis(name: str, slots: list[Slot]) -> str | None:
    figure = _OF_USE.get(name)
    found = {use.basis[figure] for use in _uses(slots) if figure in use.basis}
    return ", ".join(sorted(found)) or None


def _why_missing(name: str, plan: AbPlan, slots: list[Slot]) -> str:
    figure = _OF_USE.get(name)
    reasons = {use.missing[figure] for use in _uses(slots) if figure in use.missing}
    if reasons:
        return "; ".join(sorted(reasons))
    if name.startswith("usd") and None in (plan.a.usd_per_hour, plan.b.usd_per_hour):
        return "no price is known: --price"
    if name in ("goodput_rps", "slo_attainment_ratio") and plan.slo.ttft_s is plan.slo.itl_s:
        return "there is no target: --slo"
    return "not seen in both arms of any pair"


def _arm(arm: Arm, plan: AbPlan, ab: AbRun) -> dict[str, Any]:
    figures = pooled_figures(ab.run.slots, arm, plan.slo)
    return {
        **ab.facts[arm],
        "url": display_url(plan.arm(arm).url),
        "settings": plan.arm(arm).settings,
        "usd_per_hour": plan.arm(arm).usd_per_hour,
        "figures": None if figures is None else msgspec.to_builtins(figures),
    }


def _slot(slot: Slot) -> dict[str, Any]:
    """A slot in short."""
    measured = [record for record in slot.load.records if record.phase == "measured"]
    return {
        "pair": slot.pair,
        "arm": slot.arm,
        "order": slot.order,
        "started_at_utc": slot.load.started_at_utc,
        "window_s": slot.load.end_s - slot.load.start_s,
        "elapsed_s": slot.load.elapsed_s,
        "applied": slot.applied,
        "requests": len(measured),
        "requests_ok": sum(record.outcome == "ok" for record in measured),
        "generator_limited": slot.load.generator.limited,
        "server": None if slot.use is None else msgspec.to_builtins(slot.use),
    }
