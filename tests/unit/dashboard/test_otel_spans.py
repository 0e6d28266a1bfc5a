"""Spans of requests: whose trace they are in, how they nest, and what they never hold."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.timeline import RequestTimeline
from mileage.dashboard.otel_spans import metric_points, spans_of

ARRIVED_NS = 1_793_491_200_000_000_000
STREAM = RequestTimeline(
    id=7 << 6 | 1,
    tenant="a",
    model="m",
    endpoint="chat",
    stream=True,
    arrived_at_utc_ns=ARRIVED_NS,
    outcome="ok",
    status=200,
    replica="gpu-1",
    attempts=1,
    dispatched_s=0.25,
    first_token_s=0.75,
    last_token_s=1.75,
    finished_s=2.0,
    prompt_tokens=100,
    cached_tokens=64,
    output_tokens=11,
    trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    gpu_ns=5,
    cost_nano_usd=2_000_000,
    labels="app=web,env=prod",
)


def test_a_stream_is_a_queue_and_an_engine_with_prefill_and_decode() -> None:
    root, queue, engine, prefill, decode = spans_of(STREAM)
    assert (root.name, root.kind, root.parent_id) == ("chat m", "server", None)
    assert {span.trace_id for span in (root, queue, engine, prefill, decode)} == {
        0x4BF92F3577B34DA6A3CE929D0E0E4736
    }
    assert [span.parent_id for span in (queue, engine)] == [root.span_id] * 2
    assert [span.parent_id for span in (prefill, decode)] == [engine.span_id] * 2
    assert (queue.start_ns, queue.end_ns) == (ARRIVED_NS, ARRIVED_NS + 250_000_000)
    assert (prefill.end_ns, decode.start_ns) == (ARRIVED_NS + 750_000_000,) * 2
    assert engine.attributes == {"server.address": "gpu-1"}
    attributes = root.attributes
    assert attributes["gen_ai.usage.input_tokens"] == 100
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 64
    assert attributes["gen_ai.usage.output_tokens"] == 11
    assert attributes["mileage.label.app"] == "web"
    assert attributes["mileage.cost_usd"] == pytest.approx(0.002)
    assert root.error is None


def test_figures_that_are_not_known_are_absent() -> None:
    lost = RequestTimeline(
        id=1,
        tenant="a",
        model="m",
        endpoint="embeddings",
        stream=False,
        arrived_at_utc_ns=ARRIVED_NS,
        outcome="lost",
        status=None,
        reason="gateway_died",
    )
    (root,) = spans_of(lost)
    assert (root.start_ns, root.end_ns) == (ARRIVED_NS, ARRIVED_NS)
    assert root.error == "gateway_died"
    assert "gen_ai.usage.input_tokens" not in root.attributes
    assert "http.response.status_code" not in root.attributes
    assert not list(metric_points(lost))


def test_histograms_are_those_of_the_conventions() -> None:
    points = {
        (name, attributes.get("gen_ai.token.type")): value
        for name, value, attributes in metric_points(STREAM)
    }
    assert points == {
        ("gen_ai.client.token.usage", "input"): 100,
        ("gen_ai.client.token.usage", "output"): 11,
        ("gen_ai.server.request.duration", None): 2.0,
        ("gen_ai.server.time_to_first_token", None): 0.75,
        ("gen_ai.server.time_per_output_token", None): pytest.approx(0.1),
    }


offsets = st.none() | st.floats(0, 1e5)


@given(st.integers(0, (1 << 63) - 1), offsets, offsets, offsets, offsets)
def test_spans_nest_and_have_ids_of_their_own(
    request_id: int,
    dispatched_s: float | None,
    first_s: float | None,
    last_s: float | None,
    finished_s: float | None,
) -> None:
    timeline = msgspec.structs.replace(
        STREAM,
        id=request_id,
        trace_id=None,
        dispatched_s=dispatched_s,
        first_token_s=first_s,
        last_token_s=last_s,
        finished_s=finished_s,
    )
    spans = list(spans_of(timeline))
    assert spans == list(spans_of(timeline))
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans)
    assert all(0 < span.span_id < 1 << 64 and 0 < span.trace_id < 1 << 128 for span in spans)
    assert all(span.start_ns <= span.end_ns for span in spans)
    assert all(span.parent_id in ids for span in spans[1:])
