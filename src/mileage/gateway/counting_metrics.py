"""Metric families of prompts that are counted in tokens as they come."""

from __future__ import annotations

from mileage.measure.metrics import Counter, Families

__all__ = ["CountingMetrics"]


class CountingMetrics(Families):
    """Of models that have a tokenizer; nothing of others."""

    def __init__(self) -> None:
        self.prompts = Counter(
            "mileage_prompt_counts_total",
            "Prompts by how their tokens were found: counted, or estimated since they are short or "
            "long (by configuration), their tenant's limits let nothing in (limited), too many "
            "waited (busy), it took too long (late) or the tokenizer failed (failed); or neither, "
            "since their client left meanwhile (left).",
            ("how",),
        )
        self.seconds = Counter(
            "mileage_prompt_count_seconds_total", "Time that threads took to count prompts."
        )
