"""Metric families of time: first tokens, gaps between tokens, whole requests, and the queue."""

from __future__ import annotations

from mileage.core.timeline import RequestTimeline
from mileage.measure.metrics import Families, Histogram
from mileage.measure.timeline import tpot_s, ttft_s

__all__ = ["LatencyMetrics"]

_LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75,
    1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
)  # fmt: skip
_TOKEN_BOUNDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075,
    0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class LatencyMetrics(Families):
    """Histograms by model, of requests that ended well; of the queue, of all that left it."""

    def __init__(self) -> None:
        self.ttft = Histogram(
            "mileage_time_to_first_token_seconds",
            "From receipt of a request's last byte to the first token of its stream.",
            ("model",),
            bounds=_LATENCY_BOUNDS,
        )
        self.itl = Histogram(
            "mileage_inter_token_latency_seconds",
            "Gaps between the token events of streams.",
            ("model",),
            bounds=_TOKEN_BOUNDS,
        )
        self.tpot = Histogram(
            "mileage_time_per_output_token_seconds",
            "Per stream: (last token - first token) / (tokens - 1).",
            ("model",),
            bounds=_TOKEN_BOUNDS,
        )
        self.duration = Histogram(
            "mileage_request_duration_seconds",
            "From receipt of a request's last byte to the end of its answer.",
            ("model",),
            bounds=_LATENCY_BOUNDS,
        )
        self.queue = Histogram(
            "mileage_queue_time_seconds",
            "From receipt of a request's last byte to its dispatch, the last one where an engine "
            "failed; of all requests that were dispatched.",
            ("model",),
            bounds=_LATENCY_BOUNDS,
        )

    def finished(self, timeline: RequestTimeline, model: str) -> None:
        """Count a request that has ended; `model` is its label."""
        by_model = (model,)
        if timeline.dispatched_s is not None:
            self.queue.observe(timeline.dispatched_s, by_model)
        if timeline.outcome != "ok" or timeline.finished_s is None:
            return
        self.duration.observe(timeline.finished_s, by_model)
        first_s = ttft_s(timeline)
        if first_s is not None:
            self.ttft.observe(first_s, by_model)
        per_token_s = tpot_s(timeline)
        if per_token_s is not None:
            self.tpot.observe(per_token_s, by_model)
