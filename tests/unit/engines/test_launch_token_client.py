"""Prompts of the warm-up: however many, no two begin alike."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mileage.engines.launch import token_client
from mileage.engines.launch.launch_command import launch_command
from mileage.engines.launch.token_client import TokenClient
from mileage.engines.launch.warm_up import REQUESTS_MAX, WarmShape, WarmTook, warm_up
from mileage.wire.fetch import FetchResponse

ANSWER = msgspec.json.encode({"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}})


class Engine:
    """Answers without a network, once all are asked; refuses ids where `words`."""

    def __init__(self, *, words: bool) -> None:
        self._words = words
        self.prompts: list[Any] = []

    async def fetch(self, url: str, *, body: bytes, **options: Any) -> FetchResponse:
        prompt = msgspec.json.decode(body)["prompt"]
        await asyncio.sleep(0)
        if self._words and isinstance(prompt, list):
            return FetchResponse(400, (), b"{}")
        self.prompts.append(prompt.split() if isinstance(prompt, str) else prompt)
        return FetchResponse(200, (), ANSWER)


@pytest.mark.parametrize("words", [False, True], ids=["token ids", "words"])
def test_no_two_prompts_begin_alike(monkeypatch: pytest.MonkeyPatch, words: bool) -> None:
    engine = Engine(words=words)
    monkeypatch.setattr(token_client, "fetch", engine.fetch)
    shapes = (WarmShape(1, 8), WarmShape(16, REQUESTS_MAX), WarmShape(2, REQUESTS_MAX))
    client = TokenClient(launch_command("command", ["serve"], port=1))

    async def run() -> tuple[WarmTook, ...]:
        await client.ask(1, timeout_s=1.0)  # a first token, as before any warm-up
        return await warm_up(client, shapes, token_s=1.0, timeout_s=1.0, told=lambda took: None)

    took = asyncio.run(run())
    assert [each.failed for each in took] == [None] * 3
    sent = 1 + 2 * sum(shape.batch for shape in shapes)
    assert len(engine.prompts) == sent
    assert {len(prompt) for prompt in engine.prompts} == {1, 2, 16}
    assert len({tuple(prompt[:2]) for prompt in engine.prompts}) == sent
