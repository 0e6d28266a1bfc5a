"""What is told of a request whose prompt is counted, and which prompts are not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from mileage.core.events import Cancelled
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway import counting_pool
from mileage.gateway.app import App
from mileage.gateway.cache_salt import CacheSaltSettings
from mileage.gateway.config import GatewayConfig
from mileage.gateway.driver import Driver
from mileage.gateway.exchange import Exchange
from mileage.gateway.keys import key_hash
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.request_ids import RequestIds
from mileage.gateway.tokenizer_config import TokenizerConfig
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection
from tests.support.gated_tokenizer import Gate, until
from tests.support.tokenizer_files import words_tokenizer

MODEL = "m"


class Intake:
    """In an intake's place."""

    full = False
    """Whether the tenant's limits let nothing in."""

    def refuses(self, tenant: str, now_s: float) -> bool:
        return self.full


class Arrivals:
    """In a driver's place, and its controller's: keeps what is taken on."""

    arm_by_prefix = False

    def __init__(self) -> None:
        self.controller = self
        self.intake = Intake()
        self.adapters: dict[str, Any] = {}
        self.metrics = GatewayMetrics()
        self.expected: list[Exchange] = []
        self.requests: list[Request] = []
        self.finished: list[RequestTimeline] = []

    def expect(self, exchange: Exchange) -> None:
        self.expected.append(exchange)

    def arrived(self, exchange: Exchange, now_s: float | None = None) -> None:
        assert exchange.call.request is exchange.request
        self.requests.append(exchange.request)

    def finish(self, timeline: RequestTimeline, *then: Any) -> None:
        self.finished.append(timeline)

    def handle(self, event: object, now_s: float) -> None:
        assert isinstance(event, Cancelled)


class Client:
    """In a connection's place."""

    owner: Any = None


def asked(app: App, text: str, key: str | None = None) -> None:
    http = HttpRequest()
    http.method, http.target = b"POST", b"/v1/completions"
    http.body = json.dumps({"model": MODEL, "prompt": text}).encode()
    http.headers = [(b"host", b"localhost")]
    if key is not None:
        http.headers.append((b"authorization", b"Bearer " + key.encode()))
    app.handle(http, cast("ServerConnection", Client()))


def test_the_controller_is_told_the_count_and_nothing_of_who_has_left(tmp_path: Path) -> None:
    place = words_tokenizer(tmp_path / "tokenizer.json")
    config = GatewayConfig(
        tokenizer=TokenizerConfig(models={"*": str(place)}, bytes_min=100, wait_max_s=30)
    )

    async def main() -> list[Request]:
        arrivals = Arrivals()
        app = App(config, cast("Driver", arrivals), RequestIds(0))
        try:
            asked(app, "of few bytes")
            assert len(arrivals.requests) == 1
            for _ in range(2):
                asked(app, "extraordinarily long words " * 10)
            arrivals.expected[0].client_gone()
            await until(lambda: len(arrivals.requests) == 2)
            await until(lambda: app._counting is not None and app._counting._waiting == 0)
        finally:
            app.close()
        assert len(arrivals.expected) == 2
        assert [timeline.reason for timeline in arrivals.finished] == ["client_gone"]
        how = arrivals.metrics.counting.prompts.values
        assert how == {("short",): 1, ("left",): 1, ("counted",): 1}
        assert all(exchange.uncount is None for exchange in arrivals.expected)
        return arrivals.requests

    short, counted = asyncio.run(main())
    assert (short.prompt_counted, counted.prompt_counted) == (False, True)
    assert short.prompt_tokens_estimate == 4
    assert counted.prompt_tokens_estimate == 30
    assert counted.prompt_tokens_max is not None
    assert counted.prompt_tokens_max > 200, "a bound of tokens, whichever tokenizer it is"


def test_what_its_tenants_limits_do_not_let_in_is_not_counted(tmp_path: Path) -> None:
    place = words_tokenizer(tmp_path / "tokenizer.json")
    config = GatewayConfig(tokenizer=TokenizerConfig(models={"*": str(place)}, bytes_min=100))

    async def main() -> None:
        arrivals = Arrivals()
        app = App(config, cast("Driver", arrivals), RequestIds(0))
        try:
            arrivals.intake.full = True
            asked(app, "extraordinarily long words " * 10)
        finally:
            app.close()
        (request,) = arrivals.requests
        assert not request.prompt_counted
        assert arrivals.metrics.counting.prompts.values == {("limited",): 1}

    asyncio.run(main())


def test_tenants_with_salts_share_no_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(counting_pool, "load_tokenizer", lambda key, place: gate)
    hashes = {key_hash(name): name for name in ("a", "b", "c", "d")}
    config = GatewayConfig(
        tokenizer=TokenizerConfig(models={"*": "x"}, bytes_min=100, wait_max_s=30),
        cache_salt=CacheSaltSettings(key="k" * 32, unsalted=frozenset(("c", "d"))),
        key_hashes=hashes,
    )

    async def main() -> None:
        arrivals = Arrivals()
        app = App(config, cast("Driver", arrivals), RequestIds(0))
        try:
            for number, tenant in enumerate(("a", "a", "b", "c", "d"), 1):
                asked(app, "extraordinarily long words " * 10, key=tenant)
                await until(lambda number=number: len(arrivals.requests) == number)  # type: ignore[misc]
        finally:
            app.close()
        assert all(request.prompt_counted for request in arrivals.requests)

    asyncio.run(main())
    assert len(gate.asked) == 3, "of a, of b, and of c and d together"
