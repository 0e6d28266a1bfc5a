"""Metric family of latency targets: the requests that met them, and those that did not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from mileage.core.slo import SloConfig
from mileage.core.timeline import RequestTimeline
from mileage.measure.metrics import Counter, Families
from mileage.measure.timeline import ttft_s

__all__ = ["NOT_OURS", "TargetMetrics"]

_Target: TypeAlias = Literal["ttft", "itl", "all"]

NOT_OURS = frozenset(
    {
        "model_not_found",
        "endpoint_not_supported",
        "rate_limit_exceeded",
        "concurrency_limit_exceeded",
        "insufficient_quota",
    }
)
"""Codes of refusals for the client's own mistake or its tenant's own limits: one tenant that goes
on asking after its budget is used up would else make everybody's attainment worthless."""


def _not_known(model: str, prompt_tokens: float) -> float:
    return 0.0


class TargetMetrics(Families):
    """Measures streams against the targets in force at their end.

    Of an answer that is no stream nobody sees when its tokens came: it is neither met nor missed,
    and neither is it when it was refused.
    """

    def __init__(self, slo: SloConfig) -> None:
        self.slo = slo
        self.alone_s: Callable[[str, float], float] = _not_known
        """Seconds to the first token of a prompt of that length on an idle replica of the model,
        0 while not known: where targets follow the prompt."""
        self.requests = Counter(
            "mileage_slo_requests_total",
            "Streams by whether they met their targets: ttft; itl (p99 of the stream's own gaps); "
            "all, for which those that failed, or were refused for want of capacity, count as "
            "missed. Cancelled ones and a tenant's own limits count as neither.",
            ("model", "target", "met"),
        )

    def finished(self, timeline: RequestTimeline, model: str) -> None:
        """Count a request that has ended; `model` is its label."""
        first, smooth, both = self._judge(timeline)
        if first is not None:
            self._count(model, "ttft", first)
        if smooth is not None:
            self._count(model, "itl", smooth)
        if both is not None:
            self._count(model, "all", both)

    def met(self, timeline: RequestTimeline) -> bool | None:
        """Whether a request that has ended met all its targets; None: that cannot be said."""
        return self._judge(timeline)[2]

    def _judge(self, timeline: RequestTimeline) -> tuple[bool | None, bool | None, bool | None]:
        """Whether it met the targets ttft, itl, all; None for what cannot be said."""
        slo = self.slo.of(timeline.model)
        if not timeline.stream or (slo.ttft_s is None and slo.itl_s is None):
            return None, None, None
        outcome = timeline.outcome
        if outcome == "failed" or (outcome == "rejected" and timeline.reason not in NOT_OURS):
            return None, None, False
        if outcome != "ok":
            return None, None, None
        first = smooth = None
        first_s, itl_s = ttft_s(timeline), timeline.itl_p99_s
        alone_s = 0.0
        if slo.ttft_unloaded_ratio is not None and timeline.prompt_tokens:
            alone_s = self.alone_s(timeline.model, timeline.prompt_tokens)
        target_s = slo.ttft_target_s(alone_s)
        if target_s is not None and first_s is not None:
            first = first_s <= target_s
        if slo.itl_s is not None and itl_s is not None:
            smooth = itl_s <= slo.itl_s
        if first is None and smooth is None:
            return None, None, None
        return first, smooth, first is not False and smooth is not False

    def _count(self, model: str, target: _Target, met: bool) -> None:
        self.requests.add((model, target, "yes" if met else "no"))
