"""Families become text that Prometheus parses back to the same figures."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from mileage.gateway.admin.exposition import render, wants_openmetrics
from mileage.measure.metrics import Counter, FamilySnapshot, Gauge, Histogram

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(families: list[FamilySnapshot], *, openmetrics: bool) -> Samples:
    text = render(families, openmetrics=openmetrics).decode()
    found: Samples = {}
    for family in (parse_openmetrics if openmetrics else parse_text)(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "OpenMetrics"])
def test_every_kind_comes_out_as_it_went_in(openmetrics: bool) -> None:
    counter = Counter("mileage_requests_total", "Requests.", ("model", "outcome"))
    counter.add(("m", "ok"), 41)
    counter.add(("m", "failed"))
    gauge = Gauge("mileage_connections", "Connections.")
    gauge.set(7)
    histogram = Histogram("mileage_latency_seconds", "Latency.", ("model",), bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 3.0):
        histogram.observe(value, ("m",))
    families = [each.snapshot() for each in (counter, gauge, histogram)]
    assert parsed(families, openmetrics=openmetrics) == {
        key("mileage_requests_total", model="m", outcome="ok"): 41,
        key("mileage_requests_total", model="m", outcome="failed"): 1,
        key("mileage_connections"): 7,
        key("mileage_latency_seconds_bucket", model="m", le="0.1"): 2,
        key("mileage_latency_seconds_bucket", model="m", le="1.0"): 3,
        key("mileage_latency_seconds_bucket", model="m", le="+Inf"): 4,
        key("mileage_latency_seconds_count", model="m"): 4,
        key("mileage_latency_seconds_sum", model="m"): pytest.approx(3.65),
    }


@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "OpenMetrics"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param('a"b', id="a quote"),
        pytest.param("a\\b\\", id="backslashes"),
        pytest.param("a\nb", id="a line break"),
        pytest.param('"} 1\nmileage_fake_total 9\n#', id="an attempt to add a series"),
        pytest.param("日本 🚀", id="other scripts"),
        pytest.param("", id="an empty value"),
    ],
)
def test_a_hostile_label_value_stays_a_value(openmetrics: bool, name: str) -> None:
    gauge = Gauge("mileage_replica_up", "Up.", ("replica",))
    gauge.set(1, (name,))
    assert parsed([gauge.snapshot()], openmetrics=openmetrics) == {
        key("mileage_replica_up", replica=name): 1
    }


def test_values_that_become_equal_are_added_up() -> None:
    long = "x" * 300
    counter = Counter("mileage_requests_total", "Requests.", ("tenant",))
    counter.add((long + "1",), 2)
    counter.add((long + "2",), 3)
    counter.add(("\ud800",), 4)
    counter.add(("?",), 5)
    histogram = Histogram("mileage_x_seconds", "X.", ("tenant",), bounds=(1.0,))
    histogram.observe(0.5, (long + "1",))
    histogram.observe(2.0, (long + "2",))
    found = parsed([counter.snapshot(), histogram.snapshot()], openmetrics=False)
    assert found[key("mileage_requests_total", tenant="x" * 256)] == 5
    assert found[key("mileage_requests_total", tenant="?")] == 9
    assert found[key("mileage_x_seconds_bucket", tenant="x" * 256, le="1.0")] == 1
    assert found[key("mileage_x_seconds_count", tenant="x" * 256)] == 2


def test_a_family_that_comes_twice_is_printed_once() -> None:
    first, second = Gauge("mileage_a", "A."), Gauge("mileage_a", "A again.")
    first.set(1)
    second.set(2)
    found = parsed([first.snapshot(), second.snapshot()], openmetrics=False)
    assert found == {key("mileage_a"): 1}


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        pytest.param(None, False, id="no header"),
        pytest.param("*/*", False, id="anything"),
        pytest.param("text/plain;version=0.0.4", False, id="plain text"),
        pytest.param(
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3",
            True,
            id="what Prometheus sends",
        ),
        pytest.param("text/plain, application/openmetrics-text", False, id="plain text first"),
        pytest.param("Application/OpenMetrics-Text; version=abc", True, id="an odd version"),
        pytest.param(",;,=;", False, id="nonsense"),
    ],
)
def test_the_format_is_what_accept_names_first(accept: str | None, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics
