"""What a collector is sent over OTLP/HTTP, decoded by the protocol's own definitions."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mileage.core.errors import ConfigError, EngineError
from mileage.dashboard.otel_sender import OtelSender
from tests.unit.dashboard.test_otel_spans import STREAM


class Collector(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: dict[str, list[bytes]] = {}
        self.headers: list[dict[str, str]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.setdefault(self.path, []).append(body)
        self.server.headers.append({k.lower(): v for k, v in self.headers.items()})
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_spans_and_histograms_arrive(collector: Collector) -> None:
    with OtelSender(collector.url, headers={"x-team": "a"}) as sender:
        assert sender.send([STREAM, STREAM]) == 10
        sender.flush()
    (body,) = collector.bodies["/v1/traces"]
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    names = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert names["service.name"] == "mileage"
    (scope,) = resource.scope_spans
    assert [span.name for span in scope.spans][:5] == [
        *("chat m", "queue", "engine", "prefill", "decode"),
    ]
    assert {span.trace_id.hex() for span in scope.spans} == {STREAM.trace_id}
    assert not scope.spans[0].parent_span_id
    assert scope.spans[3].parent_span_id == scope.spans[2].span_id
    (metrics,) = collector.bodies["/v1/metrics"]
    (resource_metrics,) = ExportMetricsServiceRequest.FromString(metrics).resource_metrics
    found = {
        metric.name: metric.histogram.data_points[0]
        for metric in resource_metrics.scope_metrics[0].metrics
    }
    assert found["gen_ai.server.request.duration"].count == 2
    assert found["gen_ai.server.request.duration"].sum == pytest.approx(4.0)
    assert {headers.get("x-team") for headers in collector.headers} == {"a"}


def test_a_collector_that_refuses_is_told(collector: Collector) -> None:
    collector.status = 400
    with (
        OtelSender(collector.url, timeout_s=60) as sender,
        pytest.raises(EngineError, match="did not take the spans"),
    ):
        sender.send([STREAM])


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://a", "http://", ""])
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="--endpoint"):
        OtelSender(endpoint)
