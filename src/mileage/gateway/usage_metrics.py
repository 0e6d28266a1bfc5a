"""Metric families of what requests used: tokens, GPU time, money."""

from __future__ import annotations

from mileage.core.timeline import RequestTimeline
from mileage.measure.metrics import Counter, Families
from mileage.measure.timeline import output_tokens

__all__ = ["UsageMetrics"]

_BY_TENANT = ("model", "tenant")


class UsageMetrics(Families):
    """Totals by model and tenant. Of requests that shared an answer each token counts once."""

    def __init__(self) -> None:
        self.prompt_tokens = Counter(
            "mileage_prompt_tokens_total", "Prompt tokens that engines reported.", _BY_TENANT
        )
        self.cached_tokens = Counter(
            "mileage_cached_tokens_total",
            "Prompt tokens that came out of a prefix cache.",
            _BY_TENANT,
        )
        self.output_tokens = Counter(
            "mileage_output_tokens_total",
            "Output tokens: reported by the engine, else counted on the stream.",
            _BY_TENANT,
        )
        self.gpu_seconds = Counter(
            "mileage_gpu_seconds_total",
            "GPU time of the requests' replicas, each request's share of it.",
            _BY_TENANT,
        )
        self.cost_usd = Counter(
            "mileage_cost_usd_total",
            "What tenants were charged, by their tokens or by GPU time; absent without a price.",
            _BY_TENANT,
        )

    def finished(self, timeline: RequestTimeline, model: str) -> None:
        """Count what a request used that has ended; `model` is its label."""
        by_tenant = (model, timeline.tenant)
        if timeline.gpu_ns:
            self.gpu_seconds.add(by_tenant, timeline.gpu_ns / 1e9)
        if timeline.cost_nano_usd is not None:
            self.cost_usd.add(by_tenant, timeline.cost_nano_usd / 1e9)
        if timeline.merged_into is not None:
            return
        if timeline.prompt_tokens:
            self.prompt_tokens.add(by_tenant, timeline.prompt_tokens)
        if timeline.cached_tokens:
            self.cached_tokens.add(by_tenant, timeline.cached_tokens)
        output = output_tokens(timeline)
        if output:
            self.output_tokens.add(by_tenant, output)
