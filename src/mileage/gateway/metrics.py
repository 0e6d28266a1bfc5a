"""The data plane's metric families, and what one finished request adds to them."""

from __future__ import annotations

from mileage.core.slo import SloConfig
from mileage.core.timeline import RequestTimeline
from mileage.gateway.counting_metrics import CountingMetrics
from mileage.gateway.experiment_metrics import ExperimentMetrics
from mileage.gateway.governor_metrics import GovernorMetrics
from mileage.gateway.latency_metrics import LatencyMetrics
from mileage.gateway.pause_watch import PauseMetrics
from mileage.gateway.record_metrics import RecordMetrics
from mileage.gateway.target_metrics import TargetMetrics
from mileage.gateway.usage_metrics import UsageMetrics
from mileage.measure.metrics import Counter, Families, Gauge

__all__ = ["GatewayMetrics"]

_NO_TARGETS = SloConfig()


class GatewayMetrics(Families):
    """Families of one worker. Models are those that engines serve, or `unknown`."""

    def __init__(self, slo: SloConfig = _NO_TARGETS) -> None:
        self.requests = Counter(
            "mileage_requests_total",
            "Requests by how they ended.",
            ("model", "endpoint", "tenant", "outcome"),
        )
        self.responses = Counter(
            "mileage_responses_total", "HTTP answers by status, refused ones included.", ("status",)
        )
        self.merged = Counter(
            "mileage_requests_merged_total",
            "Requests that needed no call to an engine of their own: they shared another's answer "
            "(same), or its call (batch).",
            ("kind",),
        )
        self.upstream_failures = Counter(
            "mileage_upstream_failures_total",
            "Attempts that failed, by replica and kind.",
            ("replica", "kind"),
        )
        self.usage = UsageMetrics()
        self.latency = LatencyMetrics()
        self.targets = TargetMetrics(slo)
        self.governor = GovernorMetrics()
        self.records = RecordMetrics()
        self.experiment = ExperimentMetrics()
        self.pauses = PauseMetrics()
        self.counting = CountingMetrics()
        self.connections = Gauge("mileage_connections", "Open client connections.")
        self.in_flight = Gauge("mileage_requests_in_flight", "Requests being answered.")
        self.draining = Gauge("mileage_draining", "Workers that drain: 1 each.")
        self.replica_in_flight = Gauge(
            "mileage_replica_in_flight", "Requests dispatched and not finished.", ("replica",)
        )
        self._status_labels: dict[int, tuple[str]] = {}

    def responded(self, status: int) -> None:
        """Count an HTTP answer."""
        labels = self._status_labels.get(status)
        if labels is None:
            labels = self._status_labels[status] = (str(status),)
        self.responses.add(labels)

    def finished(self, timeline: RequestTimeline, model: str) -> None:
        """Count a request that has ended; `model` is its label."""
        self.requests.add((model, timeline.endpoint, timeline.tenant, timeline.outcome))
        if timeline.status is not None:
            self.responded(timeline.status)
        self.usage.finished(timeline, model)
        self.latency.finished(timeline, model)
        if timeline.stream:
            self.targets.finished(timeline, model)
        if timeline.outcome == "rejected":
            self.governor.refused(timeline)
