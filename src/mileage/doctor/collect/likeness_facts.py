"""What prompts have in common -> facts of the workload."""

from __future__ import annotations

from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.measure.prompt_likeness import Likeness

__all__ = ["PROMPTS_MIN", "likeness_facts"]

PROMPTS_MIN = 8
"""Fewer comparisons say little about a workload."""

TURNS_RATIO = 0.5
"""Share of prompts that go on where an earlier one ends, from which it is conversations."""


def likeness_facts(likeness: Likeness | None) -> FactsDocument:
    """The facts; none where too few prompts were seen."""
    if likeness is None or likeness.prompts < PROMPTS_MIN:
        return {}
    alike = likeness.alike_ratio > 0
    return facts_document(
        workload={
            "shared_prefix_tokens": likeness.head_tokens,
            "shared_prefix_ratio": likeness.head_ratio,
            "first_diff_token": likeness.first_diff_token,
            "identical_after_diff_ratio": likeness.same_behind_ratio,
            "multi_turn": (likeness.continued_ratio or 0.0) >= TURNS_RATIO if alike else False,
        }
    )
