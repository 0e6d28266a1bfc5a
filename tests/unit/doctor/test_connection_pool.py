"""Pools: their size by setting, library and processes, and whether they are full."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.connection_pool import Pool, is_pool_size, pool_of
from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.interval import Interval, exactly


def evidence(settings: dict[str, Any], **signals: Any) -> Evidence:
    return Evidence(decode_facts({"settings": settings, "signals": signals}))


@pytest.mark.parametrize(
    ("settings", "size", "certain"),
    [
        pytest.param({"client.max_connections": 64}, 64, True, id="as it is set"),
        pytest.param(
            {"client.max_connections": 64, "client.processes": 3}, 192, True, id="of each process"
        ),
        pytest.param(
            {"client.max_connections": None, "client.http_library": "aiohttp"},
            100,
            True,
            id="not set: the library's default",
        ),
        pytest.param(
            {"client.http_library": "httpx"},
            100,
            False,
            id="nothing said of it: the default, perhaps",
        ),
    ],
)
def test_a_pool_has_the_size(settings: dict[str, Any], size: float, certain: bool) -> None:
    pool = pool_of(evidence(settings), "client")
    assert pool is not None
    assert (pool.size, pool.certain) == (exactly(size), certain)


@pytest.mark.parametrize("library", ["requests", "urllib3", "net/http", "curl"])
def test_a_library_that_opens_as_many_as_are_asked_for_has_no_pool(library: str) -> None:
    settings = {"client.max_connections": None, "client.http_library": library}
    assert pool_of(evidence(settings), "client") is None


def test_a_proxy_has_a_pool_in_each_worker_of_each_replica() -> None:
    settings = {"proxy.max_connections": 50, "proxy.workers": 4, "proxy.replicas": 2}
    pool = pool_of(evidence(settings), "proxy")
    assert pool is not None
    assert pool.size == exactly(400)


@pytest.mark.parametrize(
    ("in_flight", "full"),
    [
        pytest.param(100, True, id="as many as it holds"),
        pytest.param(96, True, id="a few have just been answered"),
        pytest.param(60, False, id="clearly fewer"),
        pytest.param(140, False, id="more than it could hold"),
        pytest.param({"min": 80, "max": 100}, None, id="a bound that reaches below"),
    ],
)
def test_a_pool_is_full(in_flight: Any, full: bool | None) -> None:
    seen = evidence({}, client_requests_in_flight_max=in_flight)
    pool = Pool(exactly(100), True, "100")
    assert pool.full(seen.number("client_requests_in_flight_max")).truth is full


@pytest.mark.parametrize(
    ("count", "usual"),
    [(100, True), (256, True), (50, True), (500, True), (37, False), (113, False), (4, False)],
)
def test_some_numbers_are_chosen_for_pools(count: int, usual: bool) -> None:
    seen = evidence({}, requests_running_max=count)
    assert is_pool_size(seen.number("requests_running_max")).truth is usual


def test_a_bound_is_no_round_number() -> None:
    seen = evidence({}, requests_running_max={"min": 100})
    assert is_pool_size(seen.number("requests_running_max")).truth is None


def test_a_pool_that_is_known_within_bounds_is_compared_as_a_whole() -> None:
    wanted = Evidence(decode_facts({"workload": {"concurrency": 80}})).number("concurrency")
    assert Pool(Interval(40, 60), True, "").below(wanted).truth is True
    assert Pool(Interval(40, 90), True, "").below(wanted).truth is None
