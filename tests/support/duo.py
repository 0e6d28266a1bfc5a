"""Two scripted engines behind one real gateway, set back between tests."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from mileage.core.timeline import RequestTimeline
from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.gateway import Gateway, wait_until
from tests.support.local_http import LOCAL

__all__ = ["BREAKER_FAILURES", "RESPONSE_TIMEOUT_S", "Duo", "duo_config"]

BREAKER_FAILURES = 3
RESPONSE_TIMEOUT_S = 5.0


def duo_config(a: ScriptedEngine, b: ScriptedEngine, breaker_failures: int) -> str:
    """A mileage.toml that reacts quickly: engines `a` and `b`, an alias, CORS."""
    engines = "".join(
        f"""
[[engines]]
kind = "vllm"
name = "{name}"
url = "{engine.url}"
health_interval_s = 0.2
scrape_interval_s = 0.2
response_timeout_s = {RESPONSE_TIMEOUT_S}
"""
        for name, engine in (("a", a), ("b", b))
    )
    return f"""
[server]
cors_origins = ["https://app.example"]

[aliases]
gpt-4o = "toy"

[breaker]
failures_max = {breaker_failures}
open_s = 2.0
{engines}
"""


class Duo:
    """Engine `a` serves models toy and a, engine `b` toy and b; the gateway stands before both."""

    def __init__(
        self,
        directory: Path,
        a: ScriptedEngine,
        b: ScriptedEngine,
        *,
        breaker_failures: int = BREAKER_FAILURES,
    ) -> None:
        self.a, self.b = a, b
        self.gateway = Gateway(directory, config=duo_config(a, b, breaker_failures))
        self._since_utc_ns = 0

    @property
    def engines(self) -> tuple[ScriptedEngine, ScriptedEngine]:
        """Both."""
        return self.a, self.b

    def reset(self) -> None:
        """Both engines new, up and trusted by the gateway; nothing in `rows`."""
        first: deque[Behaviour] = deque()
        for engine in self.engines:
            engine.reset()
            engine.following = first
        with httpx.Client(base_url=self.gateway.root, **LOCAL) as client:
            for model in ("a", "b"):
                wait_until(partial(_answers, client, model), f"{model} is up again")
        for engine in self.engines:
            engine.reset()
            engine.following = first
        self._since_utc_ns = time.time_ns()

    def set(self, behaviour: Behaviour) -> None:
        """How both engines answer from now on."""
        for engine in self.engines:
            engine.behaviour = behaviour

    def first(self, *behaviours: Behaviour) -> None:
        """How the next requests are answered, whichever engine they come to."""
        self.a.following.extend(behaviours)

    def release(self) -> None:
        """Let go on what both engines hold."""
        for engine in self.engines:
            engine.release()

    def sum(self, counter: str) -> int:
        """A counter of the engines, over both."""
        return sum(getattr(engine, counter) for engine in self.engines)

    def received(self) -> list[Any]:
        """The generation requests that both received."""
        return [*self.a.received, *self.b.received]

    def rows(self, count: int) -> list[RequestTimeline]:
        """The ledger's requests since the last reset, once there are `count`."""
        return self.gateway.requests(count, since_utc_ns=self._since_utc_ns)


def _answers(client: httpx.Client, model: str) -> bool:
    body = {"model": model, "messages": [{"role": "user", "content": "up?"}]}
    return client.post("/v1/chat/completions", json=body).is_success
