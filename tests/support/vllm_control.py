"""A vLLM server's /mileage/control for tests, and load on its engine."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.vllm_server import CONTROL_TOKEN, VllmServer

__all__ = ["PATIENCE_S", "Control", "EngineLoad"]

PATIENCE_S = 120.0
"""The longest wait for anything: a busy machine is no failure."""
_PATH = "/mileage/control"
_VOCABULARY = 49_000
NOTHING = {"active_max": None, "step_tokens_max": None, "long_prefill_tokens_max": None}


class Control:
    """The control of one server."""

    def __init__(self, server: VllmServer) -> None:
        self.url = server.url
        headers = {"authorization": f"Bearer {CONTROL_TOKEN}"}
        self.client = httpx.Client(base_url=server.url, timeout=PATIENCE_S, headers=headers)

    def get(self) -> dict[str, Any]:
        """The document."""
        found: dict[str, Any] = self.client.get(_PATH).raise_for_status().json()
        return found

    def post(self, document: Any, **headers: str) -> httpx.Response:
        """A request as it is."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.client.post(_PATH, content=body, headers=headers)

    def set(self, lease_s: float | None = None, **knobs: int | None) -> dict[str, Any]:
        """Ask for the knobs, and wait until they are in force."""
        asked = {"knobs": knobs, "lease_s": lease_s, "wait_s": 60}
        found: dict[str, Any] = self.post(asked).raise_for_status().json()
        assert found["applied_version"] >= found["version"], found
        return found

    def reset(self) -> None:
        """Everything as it was at the start."""
        self.set(**NOTHING, waiting_max=None)

    def until(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the document fulfils the condition."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition(found := self.get()):
            assert time.monotonic() < deadline_s, f"not within {PATIENCE_S} s: {what}: {found}"
            time.sleep(0.02)
        return found


class EngineLoad:
    """Clients that send one request after another until the block ends; `failures` tells of those
    that were not answered with all their tokens."""

    def __init__(
        self, server: VllmServer, clients: int, *, prompt_tokens: int, output_tokens: int
    ) -> None:
        self._server, self._tokens = server, (prompt_tokens, output_tokens)
        self._ended = threading.Event()
        self.failures: list[str] = []
        self.answered = 0
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed),))
            for seed in range(clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, rng: random.Random) -> None:
        prompt_tokens, output_tokens = self._tokens
        with httpx.Client(base_url=self._server.url, timeout=PATIENCE_S) as client:
            while not self._ended.is_set():
                try:
                    self._ask(client, rng, prompt_tokens, output_tokens)
                except Exception as error:
                    self.failures.append(f"{type(error).__name__}: {error}")
                    return

    def _ask(self, client: httpx.Client, rng: random.Random, prompt: int, output: int) -> None:
        asked = {
            "model": self._server.name,
            "prompt": [rng.randrange(10, _VOCABULARY) for _ in range(prompt)],
            "max_tokens": output,
            "ignore_eos": True,
        }
        answer = client.post("/v1/completions", json=asked)
        if answer.status_code != 200:
            self.failures.append(f"{answer.status_code} {answer.text[:200]}")
            return
        usage = answer.json()["usage"]
        if usage["completion_tokens"] != output or usage["prompt_tokens"] != prompt:
            self.failures.append(f"not whole: {usage}")
        self.answered += 1
