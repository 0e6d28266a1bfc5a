"""Models that only some tenants may use: for all others there are none such."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mileage.core.request import Request
from mileage.gateway.app import App
from mileage.gateway.config import GatewayConfig
from mileage.gateway.driver import Driver
from mileage.gateway.exchange import Exchange
from mileage.gateway.keys import key_hash, new_key
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.request_ids import RequestIds
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection

KEYS = {tenant: new_key() for tenant in ("legal", "other")}


class Arrivals:
    """In a driver's place: keeps what arrives."""

    def __init__(self) -> None:
        self.metrics = GatewayMetrics()
        self.adapters: dict[str, Any] = {}
        self.arm_by_prefix = False
        self.requests: list[Request] = []

    def arrived(self, exchange: Exchange) -> None:
        self.requests.append(exchange.request)

    def served_models(self) -> list[str]:
        return ["chat", "law"]


class Client:
    """In a connection's place: keeps what is answered."""

    owner: Any = None

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []

    def respond(self, status: int, head: bytes, body: bytes) -> None:
        self.answers.append((status, msgspec.json.decode(body)))


def ask(tenant: str, method: bytes, target: bytes, body: bytes = b"") -> tuple[Arrivals, Client]:
    arrivals, client = Arrivals(), Client()
    config = GatewayConfig(
        key_hashes={key_hash(key): name for name, key in KEYS.items()},
        private_models={"law": ("legal",)},
        aliases={"lawyer": "law"},
    )
    http = HttpRequest()
    http.method, http.target, http.body = method, target, body
    key = b"Bearer " + KEYS[tenant].encode()
    http.headers = [(b"host", b"localhost"), (b"authorization", key)]
    app = App(config, cast("Driver", arrivals), RequestIds(0))
    app.handle(http, cast("ServerConnection", client))
    return arrivals, client


def chat(tenant: str, model: str) -> tuple[Arrivals, Client]:
    body = msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": "hi"}]})
    return ask(tenant, b"POST", b"/v1/chat/completions", body)


def test_its_own_tenant_uses_it() -> None:
    arrivals, client = chat("legal", "lawyer")
    assert ([each.model for each in arrivals.requests], client.answers) == (["law"], [])


def test_for_others_it_does_not_exist() -> None:
    for name in ("law", "lawyer"):
        arrivals, client = chat("other", name)
        ((status, answer),) = client.answers
        assert (status, answer["error"]["code"], arrivals.requests) == (404, "model_not_found", [])
    assert len(chat("other", "chat")[0].requests) == 1


def test_others_do_not_see_it_in_the_list() -> None:
    def listed(tenant: str) -> list[str]:
        ((_, answer),) = ask(tenant, b"GET", b"/v1/models")[1].answers
        return [each["id"] for each in answer["data"]]

    assert listed("legal") == ["chat", "law", "lawyer"]
    assert listed("other") == ["chat"]
