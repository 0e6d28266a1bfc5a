"""The figures that simulations are compared by: their names, and which way they are better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from mileage.cli.simulate_format import count, percent, rate, seconds, usd
from mileage.sim.summary import Summary

__all__ = ["BEST", "FIGURES", "WORST", "Figure", "figures_shown", "marks", "worst_decile"]

BEST: Final = "▲"
WORST: Final = "▼"


class Figure(NamedTuple):
    """One row. `key`: where JSON has it; `better`: 1 where more is, -1 where less is, else 0."""

    key: str
    name: str
    text: Callable[[float], str]
    better: int = 0

    def of(self, summary: Summary) -> float | None:
        """Its value in a summary; None where there is none."""
        if self.key == "rejected":
            return sum(summary.rejected.values())
        if self.key == "attainment_by_prompt_decile":
            return worst_decile(summary)
        value: Any = summary
        for name in self.key.split("."):
            value = getattr(value, name, None)
        return None if value is None else float(value)


FIGURES: Final = (
    Figure("requests", "requests", count),
    Figure("slo_attainment_ratio", "met their targets", percent, 1),
    Figure("attainment_by_prompt_decile", "  worst tenth by prompt length", percent, 1),
    Figure("goodput_rps", "goodput", rate, 1),
    Figure("answered", "answered", count, 1),
    Figure("rejected", "refused", count, -1),
    Figure("ttft_s.p50", "TTFT p50", seconds, -1),
    Figure("ttft_s.p95", "TTFT p95", seconds, -1),
    Figure("ttft_s.p99", "TTFT p99", seconds, -1),
    Figure("itl_s.p50", "ITL p50", seconds, -1),
    Figure("itl_s.p95", "ITL p95", seconds, -1),
    Figure("itl_s.p99", "ITL p99", seconds, -1),
    Figure("e2e_s.p50", "E2E p50", seconds, -1),
    Figure("e2e_s.p95", "E2E p95", seconds, -1),
    Figure("e2e_s.p99", "E2E p99", seconds, -1),
    Figure("output_tokens_per_s", "output tokens", rate, 1),
    Figure("usd_per_mtok", "cost per million output tokens", usd, -1),
    Figure("usd_per_mtok_in_slo", "  of those within targets", usd, -1),
    Figure("gpu_busy_ratio", "GPU busy", percent),
    Figure("kv_cache_usage_mean_ratio", "KV cache used, mean", percent),
    Figure("kv_cache_usage_peak_ratio", "KV cache used, peak", percent),
    Figure("prefix_cache_hit_ratio", "prefix cache hits", percent, 1),
    Figure("kv_tier_hit_ratio", "  found behind the GPU", percent, 1),
    Figure("preemptions", "preemptions", count, -1),
    Figure("adapter_loads", "LoRA adapters loaded", count, -1),
)

_OF_TARGETS: Final = (
    "slo_attainment_ratio",
    "attainment_by_prompt_decile",
    "goodput_rps",
    "usd_per_mtok_in_slo",
)


def figures_shown(*, has_target: bool) -> tuple[Figure, ...]:
    """Those that tell something: without a target, every answer would have met all of them."""
    return tuple(each for each in FIGURES if has_target or each.key not in _OF_TARGETS)


def worst_decile(summary: Summary) -> float | None:
    """The lowest attainment of the tenths by prompt length; None with too few requests."""
    return min(summary.attainment_by_prompt_decile, default=None)


def marks(figure: Figure, values: Sequence[float | None]) -> list[str]:
    """BEST, WORST or nothing for each of the values; nothing for all where they do not differ as
    they are shown."""
    known = [value * figure.better for value in values if value is not None]
    texts = {figure.text(value) for value in values if value is not None}
    if not figure.better or len(texts) < 2:
        return [""] * len(values)
    found = []
    for value in values:
        measure = None if value is None else value * figure.better
        found.append(BEST if measure == max(known) else WORST if measure == min(known) else "")
    return found
