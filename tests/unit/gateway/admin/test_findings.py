"""The admin plane's findings: what the rules make of the gateway's own page."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import msgspec
import pytest
from starlette.requests import Request

from mileage.gateway.admin.findings import PERIOD_S, WINDOW_PAGES, FindingsApi, GatewayWords

STATUS = {"replicas": [{"name": "embedded", "kind": "llamacpp", "models": ["m"], "url": None}]}
CONFIG = {"embedded": {"slots": 2, "context_tokens": 2048}, "costs": {"usd_per_gpu_hour": 2.0}}
PAGE = """
mileage_replica_in_flight{{replica="embedded"}} {running}
mileage_replica_running{{replica="embedded"}} {running}
mileage_replica_waiting{{replica="embedded"}} 0
mileage_replica_queue_requests{{replica="embedded"}} {held}
mileage_replica_limit{{replica="embedded"}} 2
mileage_requests_in_flight {running}
mileage_requests_total{{model="m",endpoint="chat",tenant="t",outcome="ok"}} {done}
mileage_output_tokens_total{{model="m",tenant="t"}} {done}
"""


def words() -> GatewayWords:
    return GatewayWords(msgspec.json.encode(STATUS), msgspec.json.encode(CONFIG), None)


def asked(api: FindingsApi) -> dict[str, Any]:
    request = cast("Request", None)
    (route,) = api.routes()
    response = asyncio.run(route.endpoint(request))
    document: dict[str, Any] = json.loads(response.body)
    return document


def watched(running: int, held: int, per_look: int) -> FindingsApi:
    api = FindingsApi(words)
    for number in range(4):
        page = PAGE.format(running=running, held=held, done=number * per_look)
        api.look(page.encode(), number * PERIOD_S)
    return api


def test_before_two_looks_nothing_is_known() -> None:
    api = FindingsApi(words)
    assert asked(api)["verdict"] == "not_enough_evidence"
    assert asked(api)["window_s"] is None


def test_slots_that_are_full_while_requests_are_held_are_named() -> None:
    document = asked(watched(running=2, held=5, per_look=20))
    assert document["verdict"] == "finding"
    assert document["findings"][0]["cause"] == "max_num_seqs_cap"
    assert any("max_num_seqs" in line for line in document["findings"][0]["evidence"])
    assert document["window_s"] == 3 * PERIOD_S


def test_a_gateway_that_nobody_asks_is_idle() -> None:
    document = asked(watched(running=0, held=0, per_look=0))
    assert [found["cause"] for found in document["findings"]] == ["idle_capacity"]


def test_looks_are_as_far_apart_as_they_should_be_and_no_more_than_two_minutes_are_kept() -> None:
    api = FindingsApi(words)
    assert api.is_due(0.0)
    for number in range(3 * WINDOW_PAGES):
        api.look(PAGE.format(running=0, held=0, done=0).encode(), number * PERIOD_S)
    last_s = (3 * WINDOW_PAGES - 1) * PERIOD_S
    assert not api.is_due(last_s + PERIOD_S / 2)
    assert api.is_due(last_s + PERIOD_S)
    assert asked(api)["window_s"] == (WINDOW_PAGES - 1) * PERIOD_S


@pytest.mark.parametrize("body", [b"", b"[]", b"{"])
def test_words_that_are_no_documents_tell_nothing(body: bytes) -> None:
    api = FindingsApi(lambda: GatewayWords(body, body, None))
    for number in range(3):
        page = PAGE.format(running=1, held=0, done=number)
        api.look(page.encode(), number * PERIOD_S)
    assert asked(api)["window_s"] == 2 * PERIOD_S
