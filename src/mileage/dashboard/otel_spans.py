"""Spans: a request's timeline as OpenTelemetry has it, by the conventions for generative AI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from mileage.core.timeline import RequestTimeline
from mileage.ledger.account_name import MORE

__all__ = ["Attribute", "SpanRecord", "metric_points", "spans_of"]

Attribute = str | int | float | bool
SpanKind = Literal["server", "client", "internal"]

_NS: Final = 1_000_000_000
_OPERATIONS: Final = {
    "chat": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "responses": "chat",
    "messages": "chat",
}
_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_SUM: Final = 0x632BE59BD9B4E019


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One span; times are nanoseconds since 1970. `parent_id` None: the root of what we know."""

    name: str
    kind: SpanKind
    trace_id: int
    """128 bits."""
    span_id: int
    """64 bits."""
    parent_id: int | None
    start_ns: int
    end_ns: int
    attributes: dict[str, Attribute]
    error: str | None = None


def spans_of(timeline: RequestTimeline) -> Iterator[SpanRecord]:
    """The request, and below it what it waited for: the queue, the engine with prefill and decode.

    A request that came with a W3C `traceparent` is in its client's trace, others begin one. Ids
    depend on the request alone: sent twice, a span is the same one. A request that has no times (it
    was lost, or refused at once) is one span without length.
    """
    trace_id = _trace_id(timeline)
    start_ns = timeline.arrived_at_utc_ns

    def at(offset_s: float) -> int:
        return start_ns + round(offset_s * _NS)

    ends_s = [
        each
        for each in (timeline.finished_s, timeline.last_token_s, timeline.dispatched_s)
        if each is not None
    ]
    end_s = max(ends_s, default=0.0)
    root = SpanRecord(
        name=f"{_OPERATIONS[timeline.endpoint]} {timeline.model}",
        kind="server",
        trace_id=trace_id,
        span_id=_span_id(timeline.id, 0),
        parent_id=None,
        start_ns=start_ns,
        end_ns=at(end_s),
        attributes=_attributes(timeline),
        error=None if timeline.outcome == "ok" else timeline.reason or timeline.outcome,
    )
    yield root

    def part(
        number: int, name: str, kind: SpanKind, first_s: float, last_s: float, parent_id: int
    ) -> SpanRecord:
        attributes: dict[str, Attribute] = {}
        if kind == "client" and timeline.replica is not None:
            attributes["server.address"] = timeline.replica
        return SpanRecord(
            name=name,
            kind=kind,
            trace_id=trace_id,
            span_id=_span_id(timeline.id, number),
            parent_id=parent_id,
            start_ns=at(first_s),
            end_ns=at(max(first_s, last_s)),
            attributes=attributes,
        )

    sent_s = timeline.dispatched_s
    if sent_s is None:
        return
    yield part(1, "queue", "internal", 0.0, sent_s, root.span_id)
    engine = part(2, "engine", "client", sent_s, end_s, root.span_id)
    yield engine
    first_s = timeline.first_token_s
    if first_s is not None:
        yield part(3, "prefill", "internal", sent_s, first_s, engine.span_id)
        if timeline.last_token_s is not None and timeline.last_token_s > first_s:
            last_s = timeline.last_token_s
            yield part(4, "decode", "internal", first_s, last_s, engine.span_id)


def metric_points(timeline: RequestTimeline) -> Iterator[tuple[str, float, dict[str, Attribute]]]:
    """What the request adds to the histograms of the conventions: name, value, attributes."""
    labels: dict[str, Attribute] = {
        "gen_ai.operation.name": _OPERATIONS[timeline.endpoint],
        "gen_ai.provider.name": "mileage",
        "gen_ai.request.model": timeline.model,
    }
    for kind, tokens in (("input", timeline.prompt_tokens), ("output", _output(timeline))):
        if tokens is not None:
            yield "gen_ai.client.token.usage", tokens, {**labels, "gen_ai.token.type": kind}
    if timeline.outcome != "ok":
        labels = {**labels, "error.type": timeline.reason or timeline.outcome}
    if timeline.finished_s is not None:
        yield "gen_ai.server.request.duration", timeline.finished_s, labels
    first_s, last_s, output = timeline.first_token_s, timeline.last_token_s, _output(timeline)
    if timeline.outcome == "ok" and first_s is not None:
        yield "gen_ai.server.time_to_first_token", first_s, labels
        if last_s is not None and output is not None and output > 1:
            per_token_s = (last_s - first_s) / (output - 1)
            yield "gen_ai.server.time_per_output_token", per_token_s, labels


def _attributes(timeline: RequestTimeline) -> dict[str, Attribute]:
    given: dict[str, Attribute | None] = {
        "gen_ai.operation.name": _OPERATIONS[timeline.endpoint],
        "gen_ai.provider.name": "mileage",
        "gen_ai.request.model": timeline.model,
        "gen_ai.usage.input_tokens": timeline.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": timeline.cached_tokens,
        "gen_ai.usage.output_tokens": _output(timeline),
        "http.response.status_code": timeline.status,
        "error.type": None if timeline.outcome == "ok" else timeline.reason or timeline.outcome,
        "server.address": timeline.replica,
        "mileage.request.id": str(timeline.id),
        "mileage.tenant": timeline.tenant,
        "mileage.outcome": timeline.outcome,
        "mileage.stream": timeline.stream,
        "mileage.attempts": timeline.attempts,
        "mileage.adapter": timeline.adapter,
        "mileage.key": timeline.key,
        "mileage.gpu_ns": timeline.gpu_ns,
        "mileage.cost_usd": (
            None if timeline.cost_nano_usd is None else timeline.cost_nano_usd / _NS
        ),
        "mileage.itl_p99_s": timeline.itl_p99_s,
    }
    found = {name: value for name, value in given.items() if value is not None}
    if timeline.labels and timeline.labels != MORE:
        for pair in timeline.labels.split(","):
            name, _, value = pair.partition("=")
            found[f"mileage.label.{name}"] = value
    return found


def _output(timeline: RequestTimeline) -> int | None:
    counted = timeline.output_tokens
    return timeline.output_tokens_counted if counted is None else counted


def _trace_id(timeline: RequestTimeline) -> int:
    if timeline.trace_id is not None:
        with_zeros = int(timeline.trace_id, 16)
        if with_zeros:
            return with_zeros
    return _span_id(timeline.id, 5) << 64 | _span_id(timeline.id, 6)


def _span_id(request_id: int, number: int) -> int:
    """Spread over 64 bits, and never 0, which would be no id (splitmix64, Steele et al. 2014)."""
    z = (request_id * 8 + number) * _GOLDEN + _SUM & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31 or 1
