"""Range queries of a Prometheus: what is asked, how its answers become pages, replicas, CPU."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from mileage.cli.doctor_prometheus import recorded_facts
from mileage.core.errors import ConfigError, EngineError
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.doctor.collect.prometheus_answers import PromSeries, dated_pages, matrix_of
from mileage.doctor.collect.prometheus_cluster import cluster_series_facts
from mileage.doctor.facts import decode_facts
from mileage.scrape.doctor_prometheus import Recorded, ask_prometheus, selector_of
from mileage.wire.fetch import FetchResponse


def row(name: str, *values: float, **labels: str) -> dict[str, Any]:
    """A series with a value each 10 s."""
    points = [[1000.0 + 10 * n, str(value)] for n, value in enumerate(values)]
    return {"metric": {"__name__": name, **labels}, "values": points}


def series(name: str, *values: float, **labels: str) -> PromSeries:
    found = matrix_of(answer([row(name, *values, **labels)]))
    return found[0]


def answer(rows: list[dict[str, Any]]) -> bytes:
    data = {"resultType": "matrix", "result": rows}
    return msgspec.json.encode({"status": "success", "data": data})


def asked(
    answers: dict[str, list[dict[str, Any]]], selector: str = "", status: int = 200
) -> tuple[Recorded, list[str]]:
    """What comes of answers by a word of the query, and the queries."""
    queries: list[str] = []

    async def fetch(url: str, **_: Any) -> FetchResponse:
        parts = urlsplit(url)
        assert parts.path == "/api/v1/query_range"
        query = parse_qs(parts.query)["query"][0]
        queries.append(query)
        rows = next((found for word, found in answers.items() if word in query), [])
        return FetchResponse(status, (), answer(rows))

    recorded = asyncio.run(
        ask_prometheus(
            "http://p:9090",
            matchers=selector_of(selector),
            window_s=300.0,
            now_utc_s=2000.0,
            fetch=fetch,
        )
    )
    return recorded, queries


def test_the_series_of_an_engine_are_the_pages_that_it_showed() -> None:
    pod = {"pod": "chat-1", "namespace": "prod", "instance": "10.0.0.1:8000", "job": "vllm"}
    rows = [
        row("vllm:num_requests_running", 4, 6, 8, model_name="org/m", engine="0", **pod),
        row("vllm:num_requests_waiting", 0, 0, 3, model_name="org/m", engine="0", **pod),
        row("vllm:generation_tokens_total", 0, 100, 400, model_name="org/m", engine="0", **pod),
    ]
    recorded, queries = asked({"vllm:": rows}, 'namespace="prod"')
    assert all('namespace="prod"' in query for query in queries)
    document = merge_facts(recorded_facts(recorded)).document
    decode_facts(document)
    assert document["engine"]["name"] == "vllm"
    assert document["model"]["name"] == "org/m"
    assert document["signals"]["requests_running"] == 6
    assert document["signals"]["requests_waiting"] == 1
    assert document["signals"]["output_tokens_per_s"] == 20


def test_several_targets_are_replicas() -> None:
    rows = [
        row("vllm:num_requests_running", n, n, model_name="m", pod=f"chat-{n}", instance=str(n))
        for n in (1, 9)
    ]
    recorded, _ = asked({"vllm:": rows})
    document = merge_facts(recorded_facts(recorded)).document
    assert sorted(document["signals"]["requests_running"]) == [1, 9]


def test_an_exporter_in_a_namespace_of_its_own_is_asked_for_by_what_it_tells() -> None:
    gpu = row("DCGM_FI_DEV_GPU_UTIL", 20, 40, gpu="0", UUID="GPU-a", namespace="monitoring")
    word = '__name__=~"DCGM_FI_.+",exported_namespace="prod"'
    recorded, queries = asked({word: [gpu]}, '{namespace="prod"}')
    assert sum("DCGM" in query for query in queries) == 2
    document = merge_facts(recorded_facts(recorded)).document
    assert document["signals"]["gpu_util_ratio"] == pytest.approx(0.3)
    assert "engines in Prometheus" in recorded.notes


def test_labels_that_were_pushed_aside_come_back_and_texts_stay_whole() -> None:
    told = series("x", 1, pod="exporter", exported_pod='a"b\\c', job="j", gpu="0")
    assert dated_pages([told]) == [(1000.0, 'x{gpu="0",pod="a\\"b\\\\c"} 1\n')]


def test_replicas_over_time_and_cpu_against_its_quota() -> None:
    hpa = {"horizontalpodautoscaler": "chat"}
    own = {"pod": "chat-1", "container": "engine"}
    found = cluster_series_facts(
        [
            series("kube_horizontalpodautoscaler_status_current_replicas", 5, 5, 0, **hpa),
            series("kube_horizontalpodautoscaler_spec_max_replicas", 8, 8, 8, **hpa),
            series("kube_pod_container_status_restarts_total", 3, 3, 5, **own),
            series("kube_pod_container_resource_limits", 4, 4, resource="cpu", **own),
            series("container_cpu_cfs_periods_total", 0, 100, 200, **own),
            series("container_cpu_cfs_throttled_periods_total", 0, 20, 80, **own),
            series("container_cpu_usage_seconds_total", 0, 30, 70, **own),
            series("container_cpu_usage_seconds_total", 0, 9, 9, pod="chat-1", container=""),
            series("container_cpu_usage_seconds_total", 0, 9, 9, pod="proxy", container="p"),
        ],
        {"chat-1"},
    )
    decode_facts(found)
    signals = found["signals"]
    assert [p["value"] for p in signals["replicas_current"]["series"]] == [5, 5, 0]
    assert [p["t_s"] for p in signals["replicas_current"]["series"]] == [0, 10, 20]
    assert signals["process_restarts_count"] == 2
    assert signals["cpu_throttled_ratio"] == 0.4
    assert signals["cpu_cores_used"] == 3.5
    assert found["settings"] == {"hpa.max_replicas": 8, "k8s.cpu_limit": 4}


def test_of_two_autoscalers_neither_is_taken() -> None:
    name = "kube_horizontalpodautoscaler_status_current_replicas"
    both = [series(name, 1, 2, horizontalpodautoscaler=which) for which in "ab"]
    assert cluster_series_facts(both, ()) == {}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>", id="a page"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"status":"error","error":"too many samples"}', id="an error"),
        pytest.param(b'{"status":"success","data":{"result":[{"metric":{}}]}}', id="an instant"),
        pytest.param(
            b'{"status":"success","data":{"result":[{"metric":[],"values":3}]}}', id="odd"
        ),
        pytest.param(b'{"status":"success"}', id="no data"),
    ],
)
def test_what_is_no_matrix_is_an_error_that_says_why(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|Prometheus|samples|matrix|series"):
        matrix_of(body)


def test_a_refusal_is_an_error_of_the_address() -> None:
    async def fetch(url: str, **_: Any) -> FetchResponse:
        return FetchResponse(401, (), b"who are you")

    with pytest.raises(EngineError, match="answered 401"):
        asyncio.run(
            ask_prometheus(
                "http://p:9090", matchers=(), window_s=60.0, now_utc_s=100.0, fetch=fetch
            )
        )


@pytest.mark.parametrize(
    "text", ["namespace=x", "a", '"x"', 'a="b" c="d"', 'a="b"} or vector(1) or {']
)
def test_a_selector_is_matchers_and_nothing_else(text: str) -> None:
    with pytest.raises(ConfigError, match="selector"):
        selector_of(text)


def test_a_selector_may_have_braces() -> None:
    wanted = (("a", "=", '"b"'), ("c", "=~", '"d.*"'))
    assert selector_of('{a="b", c=~"d.*"}') == wanted == selector_of('a="b",c=~"d.*"')
    assert selector_of("") == ()
