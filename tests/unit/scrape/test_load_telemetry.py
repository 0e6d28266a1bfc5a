"""Requests and latency from a metrics page: of engines, and of a Mileage gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mileage.core.errors import EngineError
from mileage.measure.serving_host import LoadMoment
from mileage.scrape.load_telemetry import LoadTelemetry, load_of
from mileage.wire.fetch import FetchResponse

VLLM = b"""vllm:num_requests_running{model_name="m"} 5
vllm:num_requests_waiting{model_name="m"} 2
vllm:inter_token_latency_seconds_sum{model_name="m"} %d
vllm:inter_token_latency_seconds_count{model_name="m"} %d
"""
MILEAGE = b"""mileage_replica_running{replica="a"} 3
mileage_replica_running{replica="b"} 4
mileage_replica_waiting{replica="a"} 1
mileage_queue_requests 6
mileage_requests_in_flight 20
"""


def test_an_engine_tells_its_requests_and_the_gap_since_the_look_before() -> None:
    first, totals = load_of(VLLM % (1, 100), at_s=1.0, before=None)
    assert first == LoadMoment(at_s=1.0, running=5, waiting=2)
    second, _ = load_of(VLLM % (4, 200), at_s=2.0, before=totals)
    assert second.itl_s == pytest.approx(0.03)


def test_an_engine_that_began_anew_has_no_gap() -> None:
    _, totals = load_of(VLLM % (4, 200), at_s=1.0, before=None)
    moment, _ = load_of(VLLM % (1, 100), at_s=2.0, before=totals)
    assert moment.itl_s is None


def test_a_gateway_tells_of_all_its_replicas_and_its_queue() -> None:
    moment, _ = load_of(MILEAGE, at_s=1.0, before=None)
    assert (moment.running, moment.waiting) == (7, 7)
    bare, _ = load_of(b"mileage_requests_in_flight 20\n", at_s=1.0, before=None)
    assert (bare.running, bare.waiting, bare.has_work) == (20, None, True)


@pytest.mark.parametrize(
    ("running", "waiting", "has_work"),
    [(1, 0, True), (0, 1, True), (0, 0, False), (None, 0, None), (0, None, None), (None, 3, True)],
)
def test_whether_there_is_work(
    running: int | None, waiting: int | None, has_work: bool | None
) -> None:
    assert LoadMoment(at_s=0.0, running=running, waiting=waiting).has_work == has_work


def test_the_first_page_that_tells_is_read_from_then_on() -> None:
    asked: list[str] = []
    pages = {
        "http://a/1": FetchResponse(404, (), b""),
        "http://a/2": FetchResponse(200, (), b"up 1\n"),
        "http://a/3": FetchResponse(200, (), MILEAGE),
    }

    async def fetch(url: str, **options: Any) -> FetchResponse:
        await asyncio.sleep(0)
        asked.append(url)
        return pages[url]

    source = LoadTelemetry(list(pages), fetch=fetch)
    source.read(0.0)
    source.read(1.0)
    source.close()
    assert asked == ["http://a/1", "http://a/2", "http://a/3", "http://a/3"]
    assert source.url == "http://a/3"


def test_without_a_page_that_tells_the_first_problem_is_named() -> None:
    async def fetch(url: str, **options: Any) -> FetchResponse:
        await asyncio.sleep(0)
        return FetchResponse(200 if url.endswith("2") else 503, (), b"up 1\n")

    source = LoadTelemetry(["http://a/1", "http://a/2"], fetch=fetch)
    with pytest.raises(EngineError, match="answered 503"):
        source.read(0.0)
    source.close()
