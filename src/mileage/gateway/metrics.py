"""The data plane's metric families, and what one finished request adds to them."""

from __future__ import annotations

from mileage.core.timeline import RequestTimeline
from mileage.measure.metrics import Counter, FamilySnapshot, Gauge, Histogram
from mileage.measure.timeline import output_tokens, tpot_s, ttft_s

__all__ = ["GatewayMetrics"]

_LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75,
    1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
)  # fmt: skip
_TOKEN_BOUNDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075,
    0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
_BY_REQUEST = ("model", "endpoint", "tenant", "outcome")
_BY_TENANT = ("model", "tenant")


class GatewayMetrics:
    """Families of one worker. Models are those that engines serve, or `unknown`."""

    def __init__(self) -> None:
        self.requests = Counter(
            "mileage_requests_total", "Requests by how they ended.", _BY_REQUEST
        )
        self.responses = Counter(
            "mileage_responses_total", "HTTP answers by status, refused ones included.", ("status",)
        )
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
        self._add_records()
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
        self.connections = Gauge("mileage_connections", "Open client connections.")
        self.in_flight = Gauge("mileage_requests_in_flight", "Requests being answered.")
        self.draining = Gauge("mileage_draining", "Workers that drain: 1 each.")
        self.replica_in_flight = Gauge(
            "mileage_replica_in_flight", "Requests dispatched and not finished.", ("replica",)
        )
        self._status_labels: dict[int, tuple[str]] = {}

    def _add_records(self) -> None:
        """Families of what is written down."""
        self.ledger_records = Counter(
            "mileage_ledger_records_total", "Records written to the request log."
        )
        self.ledger_dropped = Counter(
            "mileage_ledger_dropped_records_total",
            "Records that the request log could not take.",
        )
        self.journal_records = Counter(
            "mileage_journal_records_total", "Events recorded in the journal."
        )
        self.journal_dropped = Counter(
            "mileage_journal_dropped_records_total", "Events that the journal could not take."
        )
        self.journal_stopped = Gauge(
            "mileage_journal_stopped", "Workers whose journal cannot be written: 1 each."
        )

    def families(self) -> list[Counter | Gauge | Histogram]:
        """All families, in the order in which they are exposed."""
        return [v for v in vars(self).values() if isinstance(v, Counter | Gauge | Histogram)]

    def snapshot(self) -> list[FamilySnapshot]:
        """The values of all families now."""
        return [family.snapshot() for family in self.families()]

    def responded(self, status: int) -> None:
        """Count an HTTP answer."""
        labels = self._status_labels.get(status)
        if labels is None:
            labels = self._status_labels[status] = (str(status),)
        self.responses.add(labels)

    def inter_token(self, model: str, before_s: float | None, now_s: float, events: int) -> None:
        """Count the gaps of `events` that came together, after a token at `before_s` or none."""
        labels = (model,)
        if before_s is not None:
            self.itl.observe(now_s - before_s, labels)
        if events > 1:
            self.itl.observe(0.0, labels, events - 1)

    def finished(self, timeline: RequestTimeline, model: str) -> None:
        """Count a request that has ended; `model` is its label."""
        self.requests.add((model, timeline.endpoint, timeline.tenant, timeline.outcome))
        if timeline.status is not None:
            self.responded(timeline.status)
        if timeline.merged_into is None:
            self._tokens(timeline, (model, timeline.tenant))
        if timeline.outcome != "ok" or timeline.finished_s is None:
            return
        by_model = (model,)
        self.duration.observe(timeline.finished_s, by_model)
        first_s = ttft_s(timeline)
        if first_s is not None:
            self.ttft.observe(first_s, by_model)
        per_token_s = tpot_s(timeline)
        if per_token_s is not None:
            self.tpot.observe(per_token_s, by_model)

    def _tokens(self, timeline: RequestTimeline, by_tenant: tuple[str, str]) -> None:
        if timeline.prompt_tokens:
            self.prompt_tokens.add(by_tenant, timeline.prompt_tokens)
        if timeline.cached_tokens:
            self.cached_tokens.add(by_tenant, timeline.cached_tokens)
        output = output_tokens(timeline)
        if output:
            self.output_tokens.add(by_tenant, output)
