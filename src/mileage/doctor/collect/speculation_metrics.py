"""Speculative decoding in a window: how much of what was drafted was accepted."""

from __future__ import annotations

from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.page_window import PageWindow
from mileage.measure.page_expressions import Series

__all__ = ["speculation_facts"]

_DRAFTS: Final = "vllm:spec_decode_num_drafts_total"
_DRAFTED: Final = (
    "vllm:spec_decode_num_draft_tokens_total",
    "trtllm_spec_decode_num_draft_tokens_total",
)
_ACCEPTED: Final = (
    "vllm:spec_decode_num_accepted_tokens_total",
    "trtllm_spec_decode_num_accepted_tokens_total",
)
_RATES: Final = ("vllm:spec_decode_draft_acceptance_rate", "sglang:spec_accept_rate")
_LENGTHS: Final = ("sglang:spec_accept_length", "trtllm_spec_decode_acceptance_length")


def speculation_facts(window: PageWindow) -> FactsDocument:
    """Acceptance and tokens per verify step (the bonus token included); nothing where it is off.

    Out of counters where there are any, else the mean of a gauge over the pages on which it was
    above 0: engines show 0 where they do not speculate.
    """
    drafted, accepted = _first(window, _DRAFTED), _first(window, _ACCEPTED)
    drafts = window.named_increase(_DRAFTS)
    signals: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    if drafted and accepted is not None and accepted <= drafted:
        signals["spec_acceptance_ratio"] = accepted / drafted
        if drafts:
            signals["spec_mean_accepted_len"] = 1 + accepted / drafts
            per_draft = drafted / drafts
            if per_draft.is_integer():
                settings["speculative.num_tokens"] = int(per_draft)
    if "spec_acceptance_ratio" not in signals:
        rate = _mean_above_zero(window, _RATES)
        signals["spec_acceptance_ratio"] = rate if rate is not None and rate <= 1 else None
    if "spec_mean_accepted_len" not in signals:
        signals["spec_mean_accepted_len"] = _mean_above_zero(window, _LENGTHS)
    return facts_document(signals=signals, settings=settings)


def _first(window: PageWindow, names: tuple[str, ...]) -> float | None:
    found = (window.named_increase(name) for name in names)
    return next((grown for grown in found if grown is not None), None)


def _mean_above_zero(window: PageWindow, names: tuple[str, ...]) -> float | None:
    for name in names:
        values = [
            value for values in window.gauge(Series(name)).values() for value in values if value > 0
        ]
        if values:
            return sum(values) / len(values)
    return None
