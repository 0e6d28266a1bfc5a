"""What the controller is told of a request: its load, its priority, its number of answers."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from mileage.core.replica import Adapter
from mileage.core.request import Priority, Request
from mileage.gateway.app import App
from mileage.gateway.call import Call
from mileage.gateway.config import GatewayConfig, ServerConfig
from mileage.gateway.driver import Driver
from mileage.gateway.exchange import Exchange
from mileage.gateway.keys import key_hash, new_key
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.request_ids import RequestIds
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection
from tests.support.media_samples import multimodal_chat, png, wav

KEY = new_key()


class Arrivals:
    """In a driver's place: keeps what arrives."""

    def __init__(self) -> None:
        self.metrics = GatewayMetrics()
        self.adapters = {"sql": Adapter("sql", "sql", "m")}
        self.arm_by_prefix = False
        self.calls: list[Call] = []
        self.requests: list[Request] = []

    def arrived(self, exchange: Exchange) -> None:
        self.calls.append(exchange.call)
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
    keys = {key_hash(KEY): "t"}
    config = GatewayConfig(
        server=ServerConfig(),
        aliases={"query": "sql"},
        key_hashes=keys,
        key_names=dict.fromkeys(keys, "ci"),
    )
    app = App(config, cast("Driver", arrivals), RequestIds(0))
    http = HttpRequest()
    http.method, http.target = b"POST", b"/v1/chat/completions"
    http.body = msgspec.json.encode(fields)
    authorization = (b"authorization", b"Bearer " + KEY.encode())
    http.headers = [(b"host", b"localhost"), authorization, *headers]
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


def chat(model: str = "m") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}]}


def test_a_request_is_known_by_its_key_and_its_labels() -> None:
    arrivals, _ = ask(
        chat(), (b"x-mileage-labels", b"team=search"), (b"x-mileage-labels", b"env=prod")
    )
    (call,) = arrivals.calls
    assert (call.key, call.labels, call.adapter) == ("ci", "env=prod,team=search", None)
    assert b"label" not in call.headers


def test_a_request_for_an_adapter_is_known_by_it_under_any_name() -> None:
    for name in ("sql", "query"):
        (call,) = ask(chat(name))[0].calls
        assert (call.request.model, call.adapter) == ("sql", "sql")


def test_labels_that_are_none_are_refused() -> None:
    arrivals, client = ask(chat(), (b"x-mileage-labels", b"team"))
    ((status, body),) = client.answers
    assert (status, body["error"]["param"]) == (400, "x-mileage-labels")
    assert not arrivals.calls
