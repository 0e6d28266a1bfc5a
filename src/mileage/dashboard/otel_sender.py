"""OtelSender: sends spans and histograms of requests to an OTLP/HTTP endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from mileage import __version__
from mileage.core.errors import ConfigError, EngineError
from mileage.core.timeline import RequestTimeline
from mileage.dashboard.otel_spans import SpanRecord, metric_points, spans_of
from mileage.wire.url import display_url, origin

__all__ = ["OtelSender"]

_SCOPE: Final = "mileage"
_BATCH_SPANS: Final = 512
_UNITS: Final = {
    "gen_ai.client.token.usage": "{token}",
    "gen_ai.server.request.duration": "s",
    "gen_ai.server.time_per_output_token": "s",
    "gen_ai.server.time_to_first_token": "s",
}


class OtelSender:
    """Sends in batches, one after the other; with metrics, histograms are sent at every flush.

    `endpoint` is the collector's base (http://localhost:4318): /v1/traces and /v1/metrics are put
    behind it. Raises ConfigError without the extra `otel` or for an endpoint that is none, and
    EngineError where the collector does not take a batch.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        metrics: bool = True,
    ) -> None:
        try:
            origin(endpoint)
        except ValueError as error:
            expected = "http://host:port or https://host:port"
            raise ConfigError("--endpoint", display_url(endpoint), expected) from error
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader
            from opentelemetry.sdk.resources import Resource
        except ImportError:
            expected = "OpenTelemetry's SDK: pip install 'mileage[otel]'"
            raise ConfigError("--endpoint", display_url(endpoint), expected) from None
        base = endpoint.rstrip("/")
        self._where = display_url(endpoint)
        self._resource = Resource({"service.name": _SCOPE, "service.version": __version__})
        given: dict[str, Any] = {"headers": dict(headers or {}), "timeout": timeout_s}
        self._spans = OTLPSpanExporter(f"{base}/v1/traces", **given)
        self._points = self._reader = self._meters = None
        self._histograms: dict[str, Any] = {}
        if metrics:
            self._points = OTLPMetricExporter(f"{base}/v1/metrics", **given)
            self._reader = InMemoryMetricReader()
            self._meters = MeterProvider([self._reader], self._resource, shutdown_on_exit=False)
            meter = self._meters.get_meter(_SCOPE, __version__)
            self._histograms = {
                name: meter.create_histogram(name, unit=unit) for name, unit in _UNITS.items()
            }
        self.spans_sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, timelines: Iterable[RequestTimeline]) -> int:
        """Send the spans of the requests, and count them in the histograms; how many spans."""
        before, batch = self.spans_sent, []
        for timeline in timelines:
            batch += [self._span(record) for record in spans_of(timeline)]
            for name, value, attributes in metric_points(timeline) if self._histograms else ():
                self._histograms[name].record(value, attributes)
            if len(batch) >= _BATCH_SPANS:
                self._send(batch)
                batch = []
        if batch:
            self._send(batch)
        return self.spans_sent - before

    def flush(self) -> None:
        """Send the histograms as they are."""
        if self._points is None or self._reader is None:
            return
        from opentelemetry.sdk.metrics.export import MetricExportResult

        data = self._reader.get_metrics_data()
        if data is None:
            return
        if self._points.export(data) is not MetricExportResult.SUCCESS:
            raise EngineError(self._where, "did not take the metrics")

    def close(self) -> None:
        """No request follows."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]
        if self._meters is not None and self._points is not None:
            self._meters.shutdown()
            self._points.shutdown()

    def _send(self, batch: list[Any]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        if self._spans.export(batch) is not SpanExportResult.SUCCESS:
            raise EngineError(self._where, "did not take the spans")
        self.spans_sent += len(batch)

    def _span(self, record: SpanRecord) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(span_id: int) -> SpanContext:
            flags = TraceFlags(TraceFlags.SAMPLED)
            return SpanContext(record.trace_id, span_id, is_remote=False, trace_flags=flags)

        status = Status(StatusCode.UNSET)
        if record.error is not None:
            status = Status(StatusCode.ERROR, record.error)
        return ReadableSpan(
            record.name,
            context=context(record.span_id),
            parent=None if record.parent_id is None else context(record.parent_id),
            resource=self._resource,
            attributes=record.attributes,
            kind=SpanKind[record.kind.upper()],
            status=status,
            start_time=record.start_ns,
            end_time=record.end_ns,
            instrumentation_scope=InstrumentationScope(_SCOPE, __version__),
        )
