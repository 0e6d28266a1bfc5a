"""What the controller is told of a request: its load, its priority, its number of answers."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from mileage.core.request import Priority, Request
from mileage.gateway.app import App
from mileage.gateway.config import GatewayConfig, ServerConfig
from mileage.gateway.driver import Driver
from mileage.gateway.exchange import Exchange
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.request_ids import RequestIds
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection
from tests.support.media_samples import multimodal_chat, png, wav


class Arrivals:
    """In a driver's place: keeps what arrives."""

    def __init__(self) -> None:
        self.metrics = GatewayMetrics()
        self.requests: list[Request] = []

    def arrived(self, exchange: Exchange) -> None:
        self.requests.append(exchange.request)


class Client:
    """In a connection's place: keeps what is answered."""

    owner: Any = None

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []

    def respond(self, status: int, head: bytes, body: bytes) -> None:
        self.answers.append((status, msgspec.json.decode(body)))


def ask(fields: dict[str, Any], *headers: tuple[bytes, bytes]) -> tuple[Arrivals, Client]:
    """Let an app handle one chat request."""
    arrivals, client = Arrivals(), Client()
    config = GatewayConfig(server=ServerConfig(), upstreams=())
    app = App(config, cast("Driver", arrivals), RequestIds(0))
    http = HttpRequest()
    http.method, http.target = b"POST", b"/v1/chat/completions"
    http.body = msgspec.json.encode(fields)
    http.headers = [(b"host", b"localhost"), *headers]
    app.handle(http, cast("ServerConnection", client))
    return arrivals, client


def test_the_load_of_a_multimodal_request() -> None:
    arrivals, _ = ask(multimodal_chat("hi", images=[png(280, 140)], audio=[wav(2.0)], n=3))
    (request,) = arrivals.requests
    assert request.image_patches == 4 * 10 * 5
    assert request.audio_frames == 200
    assert request.choices == 3
    assert request.prompt_tokens_estimate < 100
    assert request.prompt_tokens_max is not None
    assert request.prompt_tokens_estimate <= request.prompt_tokens_max < 400


@pytest.mark.parametrize(
    ("sent", "priority"),
    [
        pytest.param((), None, id="not said: its tenant's"),
        pytest.param(((b"x-mileage-priority", b"high"),), "high", id="high"),
        pytest.param(((b"x-mileage-priority", b" Low "),), "low", id="low, in other letters"),
        pytest.param(((b"x-mileage-priority", b"normal"),), "normal", id="normal"),
    ],
)
def test_the_priority_that_a_client_asks_for(
    sent: tuple[tuple[bytes, bytes], ...], priority: Priority | None
) -> None:
    arrivals, _ = ask(multimodal_chat("hi"), *sent)
    (request,) = arrivals.requests
    assert request.priority == priority


@pytest.mark.parametrize("value", [b"urgent", b"", b"1", b"h\xefgh"])
def test_an_unknown_priority_is_refused_by_the_headers_name(value: bytes) -> None:
    arrivals, client = ask(multimodal_chat("hi"), (b"x-mileage-priority", value))
    assert arrivals.requests == []
    ((status, answer),) = client.answers
    assert status == 400
    assert answer["error"]["param"] == "x-mileage-priority"
    assert "high, normal or low" in answer["error"]["message"]
