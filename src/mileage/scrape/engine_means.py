"""Means by an engine's own histograms, between two looks at its Prometheus page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from mileage.measure.exposition import parse
from mileage.measure.metrics_page import Page, normal_name, possible

__all__ = [
    "EngineFigure",
    "EngineMean",
    "EngineTotals",
    "means_between",
    "restarted",
    "totals_of",
]

EngineFigure: TypeAlias = Literal[
    "ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s", "prompt_tokens", "output_tokens"
]


class _Family(NamedTuple):
    """A histogram's name; `total` and `counted` where its two parts have other names."""

    name: str
    total: str = ""
    counted: str = ""

    @property
    def total_name(self) -> str:
        return self.total or f"{self.name}_sum"

    @property
    def count_name(self) -> str:
        return self.counted or f"{self.name}_count"


_LLAMACPP_GAPS: Final = _Family(
    "llamacpp:tokens_predicted_seconds",
    "llamacpp:tokens_predicted_seconds_total",
    "llamacpp:tokens_predicted_total",
)
"""Seconds from each request's first token to its last one, and all tokens, the first ones too."""

_FAMILIES: Final[Mapping[EngineFigure, tuple[_Family, ...]]] = {
    "ttft_s": (
        _Family("vllm:time_to_first_token_seconds"),
        _Family("sglang:time_to_first_token_seconds"),
        _Family("trtllm_time_to_first_token_seconds"),
        _Family("mileage_time_to_first_token_seconds"),
    ),
    "itl_s": (
        _Family("vllm:inter_token_latency_seconds"),
        _Family("vllm:time_per_output_token_seconds"),
        _Family("sglang:inter_token_latency_seconds"),
        _Family("sglang:time_per_output_token_seconds"),
        _Family("mileage_inter_token_latency_seconds"),
        _LLAMACPP_GAPS,
    ),
    "tpot_s": (
        _Family("vllm:request_time_per_output_token_seconds"),
        _Family("trtllm_time_per_output_token_seconds"),
        _Family("mileage_time_per_output_token_seconds"),
    ),
    "e2e_s": (
        _Family("vllm:e2e_request_latency_seconds"),
        _Family("sglang:e2e_request_latency_seconds"),
        _Family("trtllm_e2e_request_latency_seconds"),
        _Family("mileage_request_duration_seconds"),
    ),
    "queue_s": (
        _Family("vllm:request_queue_time_seconds"),
        _Family("sglang:queue_time_seconds"),
        _Family("trtllm_request_queue_time_seconds"),
        _Family("mileage_queue_time_seconds"),
    ),
    "prompt_tokens": (
        _Family("vllm:request_prompt_tokens"),
        _Family("sglang:prompt_tokens_histogram"),
    ),
    "output_tokens": (
        _Family("vllm:request_generation_tokens"),
        _Family("sglang:generation_tokens_histogram"),
    ),
}
"""Newer names before older ones. vLLM called its gaps time_per_output_token up to 0.10; SGLang up
to 0.4."""

_STARTED: Final = "process_start_time_seconds"
_START_STEP_S: Final = 1.0
"""A start time that differs by less is the same one: it is computed from boot time and ticks."""

_NAMES: Final = frozenset(
    spelling
    for families in _FAMILIES.values()
    for family in families
    for name in (family.total_name, family.count_name)
    for spelling in (name, normal_name(name))
) | {_STARTED}


class EngineTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sum and count of each figure since the engine began, over all of its series, and the family
    that has it. A figure that the engine does not tell is absent."""

    sums: dict[EngineFigure, float] = {}
    counts: dict[EngineFigure, int] = {}
    families: dict[EngineFigure, str] = {}
    started_at_utc_s: float | None = None
    """When its process began, in Unix time."""


class EngineMean(msgspec.Struct, frozen=True, kw_only=True):
    """Mean of what the engine counted between two looks, whoever sent it."""

    mean: float
    """In the figure's unit."""
    count: int
    family: str
    """Name of the histogram."""
    counts_first_tokens: bool = False
    """Of gaps: `count` has each request's first token, too, before which there is no gap."""

    @property
    def mean_s(self) -> float:
        """Of a figure in seconds."""
        return self.mean


def totals_of(body: bytes) -> EngineTotals:
    """The totals on a page in Prometheus' text format; lines that are none are left out.

    Never raises. A page with several models, or data-parallel engines, is summed up: so is what was
    sent to all of them.
    """
    page = Page(parse(body, _NAMES))
    sums: dict[EngineFigure, float] = {}
    counts: dict[EngineFigure, int] = {}
    names: dict[EngineFigure, str] = {}
    for figure, families in _FAMILIES.items():
        for family in families:
            total, count = _sum(page, family.total_name), _sum(page, family.count_name)
            if total is not None and count is not None:
                sums[figure], counts[figure], names[figure] = total, int(count), family.name
                break
    started = [possible(sample.value) for sample in page.samples(_STARTED)]
    return EngineTotals(
        sums=sums,
        counts=counts,
        families=names,
        started_at_utc_s=started[0] if len(started) == 1 else None,
    )


def restarted(before: EngineTotals, after: EngineTotals) -> bool:
    """The engine began anew between the two looks: a count fell, or its process is another one.

    What it had counted by then is lost.
    """
    if any(
        after.families.get(figure) == family and after.counts[figure] < before.counts[figure]
        for figure, family in before.families.items()
    ):
        return True
    first_s, last_s = before.started_at_utc_s, after.started_at_utc_s
    return first_s is not None and last_s is not None and abs(last_s - first_s) > _START_STEP_S


def means_between(before: EngineTotals, after: EngineTotals) -> dict[EngineFigure, EngineMean]:
    """The means of what came between two looks; none where the engine began anew between them.

    A family that is not there before counts from 0: engines show it with its first value. A figure
    of which nothing came is absent.
    """
    found: dict[EngineFigure, EngineMean] = {}
    if restarted(before, after):
        return found
    for figure, family in after.families.items():
        known = before.families.get(figure) == family
        count = after.counts[figure] - (before.counts[figure] if known else 0)
        total = after.sums[figure] - (before.sums[figure] if known else 0.0)
        if count > 0 and total >= 0.0:
            found[figure] = EngineMean(
                mean=total / count,
                count=count,
                family=family,
                counts_first_tokens=family == _LLAMACPP_GAPS.name,
            )
    return found


def _sum(page: Page, name: str) -> float | None:
    values = [possible(sample.value) for sample in page.samples(name)]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
