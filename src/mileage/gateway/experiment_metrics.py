"""Metric families of an experiment's two arms."""

from __future__ import annotations

from mileage.control.experiment import ArmSeen
from mileage.core.timeline import RequestTimeline
from mileage.gateway.target_metrics import NOT_OURS
from mileage.measure.metrics import Counter, Families, Histogram
from mileage.measure.timeline import output_tokens, ttft_s

__all__ = ["ExperimentMetrics"]

_BOUNDS = tuple(float(f"{0.001 * 1.25**n:.4g}") for n in range(62))
"""A quarter apart, from a millisecond to a quarter of an hour: what doubles moves three buckets."""


class ExperimentMetrics(Families):
    """Totals of the arms of whatever experiments ran since the start. Each request is in one arm,
    and under one outcome."""

    def __init__(self) -> None:
        self.requests = Counter(
            "mileage_experiment_requests_total",
            "Requests of each arm by outcome; crossed: it was answered by a replica of the other "
            "arm; washout: it came right after a change of arm. Of these two no latency counts.",
            ("arm", "outcome"),
        )
        self.errors = Counter(
            "mileage_experiment_errors_total",
            "Requests that their arm failed, also where another replica then answered, by the kind "
            "of the failure; refused: for want of capacity.",
            ("arm", "kind"),
        )
        self.targets = Counter(
            "mileage_experiment_targets_total",
            "Requests of each arm by whether they met all their targets (mileage_slo_requests_total"
            ', target "all").',
            ("arm", "met"),
        )
        self.ttft = Histogram(
            "mileage_experiment_time_to_first_token_seconds",
            "From receipt of a request's last byte to the first token of its stream.",
            ("arm",),
            bounds=_BOUNDS,
        )
        self.itl = Histogram(
            "mileage_experiment_request_itl_p99_seconds",
            "The p99 of each stream's own gaps between token events.",
            ("arm",),
            bounds=_BOUNDS,
        )
        self.duration = Histogram(
            "mileage_experiment_request_duration_seconds",
            "From receipt of a request's last byte to the end of its answer.",
            ("arm",),
            bounds=_BOUNDS,
        )
        self.prompt_tokens = Counter(
            "mileage_experiment_prompt_tokens_total",
            "Prompt tokens that engines reported.",
            ("arm",),
        )
        self.output_tokens = Counter(
            "mileage_experiment_output_tokens_total",
            "Output tokens: reported by the engine, else counted on the stream.",
            ("arm",),
        )
        self.gpu_seconds = Counter(
            "mileage_experiment_gpu_seconds_total", "The requests' shares of GPU time.", ("arm",)
        )
        self.cost_usd = Counter(
            "mileage_experiment_cost_usd_total",
            "What tenants were charged; absent without a price.",
            ("arm",),
        )

    def finished(
        self,
        timeline: RequestTimeline,
        seen: ArmSeen,
        *,
        crossed: bool,
        failure: str | None,
        met: bool | None,
    ) -> None:
        """Count a request that has ended. `failure`: the kind of an attempt of it that failed."""
        arm = (seen.arm,)
        if not seen.counted:
            self.requests.add((seen.arm, "washout"))
            return
        kind = failure if failure is not None else _kind(timeline)
        if kind is not None:
            self.errors.add((seen.arm, kind))
        if crossed:
            self.requests.add((seen.arm, "crossed"))
            return
        self.requests.add((seen.arm, timeline.outcome))
        if met is not None:
            self.targets.add((seen.arm, "yes" if met else "no"))
        if timeline.gpu_ns:
            self.gpu_seconds.add(arm, timeline.gpu_ns / 1e9)
        if timeline.cost_nano_usd is not None:
            self.cost_usd.add(arm, timeline.cost_nano_usd / 1e9)
        if timeline.merged_into is None:
            if timeline.prompt_tokens:
                self.prompt_tokens.add(arm, timeline.prompt_tokens)
            output = output_tokens(timeline)
            if output:
                self.output_tokens.add(arm, output)
        if timeline.outcome == "ok" and timeline.finished_s is not None:
            self._latencies(timeline, timeline.finished_s, arm)

    def _latencies(
        self, timeline: RequestTimeline, finished_s: float, arm: tuple[str, ...]
    ) -> None:
        self.duration.observe(finished_s, arm)
        first_s = ttft_s(timeline)
        if first_s is not None:
            self.ttft.observe(first_s, arm)
        if timeline.itl_p99_s is not None:
            self.itl.observe(timeline.itl_p99_s, arm)


def _kind(timeline: RequestTimeline) -> str | None:
    """Why it counts against its arm though no attempt of it failed; None: it does not."""
    if timeline.outcome == "failed":
        return timeline.reason or "engine_error"
    if timeline.outcome == "rejected" and timeline.reason not in NOT_OURS:
        return "refused"
    return None
