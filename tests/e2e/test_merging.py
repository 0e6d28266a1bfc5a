"""Merging before a real gateway: identical requests, and embeddings, cost the engine one call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from mileage.core.timeline import RequestTimeline
from mileage.gateway.keys import key_hash
from tests.support.duo import Duo
from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.engine_answers import PROMPT_TOKENS, embedding_of, text_of
from tests.support.gateway import Gateway, wait_until
from tests.support.local_http import LOCAL

BODY: dict[str, Any] = {
    "model": "toy",
    "messages": [{"role": "user", "content": "hello"}],
    "temperature": 0,
}
STREAM = BODY | {"stream": True, "stream_options": {"include_usage": True}}
TIMEOUT_S = 60.0


class Reader:
    """A client that reads a stream event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self._lines = response.aiter_lines()
        self.text = ""
        self.usage: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None

    async def read(self, tokens: int | None = None) -> str:
        """Read so many tokens more, or all to the end; the text so far."""
        async with asyncio.timeout(TIMEOUT_S):
            while tokens is None or tokens > 0:
                line = await anext(self._lines, None)
                if line is None:
                    break
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                self.error = event.get("error", self.error)
                self.usage = event.get("usage") or self.usage
                for choice in event.get("choices", ()):
                    content = choice["delta"].get("content")
                    if content:
                        self.text += content
                        tokens = None if tokens is None else tokens - 1
        return self.text


class Clients:
    """Many clients of one gateway, each with a connection of its own."""

    def __init__(self, gateway: Gateway) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._client = httpx.AsyncClient(base_url=gateway.url, limits=limits, **LOCAL)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Clients:
        await self._stack.enter_async_context(self._client)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def open(self, body: dict[str, Any] = STREAM, **headers: str) -> AsyncIterator[Reader]:
        """Ask for a stream; leaving the context leaves it."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._client.stream(
            "POST", "/chat/completions", json=body, headers=names
        ) as response:
            yield Reader(response)

    async def stream(self, **headers: str) -> Reader:
        """Ask for a stream that stays open until the end of the story."""
        return await self._stack.enter_async_context(self.open(STREAM, **headers))

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        """Ask, and wait for the whole answer."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._client.post(path, json=body, headers=names)


def tell(gateway: Gateway, story: Callable[[Clients], Awaitable[None]]) -> None:
    """Run a story with clients of the gateway."""

    async def run() -> None:
        async with Clients(gateway) as clients:
            await story(clients)

    asyncio.run(run())


def calls(duo: Duo) -> int:
    """Generations that the engines were asked for."""
    return len(duo.received())


async def _until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


def payer(rows: list[RequestTimeline]) -> RequestTimeline:
    """The one record that has the generation's tokens."""
    (row,) = [row for row in rows if row.merged_into is None]
    return row


def test_fifty_identical_streams_cost_one_generation(duo: Duo) -> None:
    duo.set(Behaviour(tokens=8, hold_at=3))

    async def story(clients: Clients) -> None:
        readers = await asyncio.gather(*(_third_token(clients) for _ in range(50)))
        assert calls(duo) == 1
        duo.release()
        texts = await asyncio.gather(*(reader.read() for reader in readers))
        assert set(texts) == {text_of(8)}
        assert all(r.usage and r.usage["completion_tokens"] == 8 for r in readers)

    async def _third_token(clients: Clients) -> Reader:
        reader = await clients.stream()
        assert await reader.read(3) == text_of(3)
        return reader

    tell(duo.gateway, story)
    assert calls(duo) == 1
    rows = duo.rows(50)
    assert {row.outcome for row in rows} == {"ok"}
    assert {(row.output_tokens, row.output_tokens_counted) for row in rows} == {(8, 8)}
    assert {row.merged_members for row in rows} == {50}
    assert {row.merged_into for row in rows} == {None, payer(rows).id}


def test_one_that_joins_late_gets_at_once_what_was_already_produced(duo: Duo) -> None:
    duo.set(Behaviour(tokens=6, hold_at=4))

    async def story(clients: Clients) -> None:
        first = await clients.stream()
        await first.read(4)
        late = await clients.stream()
        assert await late.read(4) == text_of(4)
        duo.release()
        assert await late.read() == await first.read() == text_of(6)

    tell(duo.gateway, story)
    assert calls(duo) == 1
    early, late = duo.rows(2)
    assert early.merged_into is None
    assert late.merged_into == early.id
    assert late.token_times[1] == 4  # together


def test_those_who_leave_stop_nobody_and_the_last_one_stops_the_engine(duo: Duo) -> None:
    duo.set(Behaviour(tokens=50, hold_at=2))

    async def story(clients: Clients) -> None:
        async with clients.open() as last:
            async with clients.open() as leader, clients.open() as member:
                await asyncio.gather(leader.read(2), member.read(2), last.read(2))
            third = await clients.stream()
            assert await third.read(2) == text_of(2)
            assert duo.sum("running") == 1
            assert duo.sum("aborted") == 0
        await asyncio.sleep(0.05)
        assert duo.sum("aborted") == 0

    tell(duo.gateway, story)
    assert calls(duo) == 1
    engine = duo.a if duo.a.received else duo.b
    engine.until(lambda: engine.aborted == 1, "the generation was given up")
    rows = duo.rows(4)
    assert {row.outcome for row in rows} == {"cancelled"}
    assert payer(rows).id == rows[-1].id
    assert {row.output_tokens_counted for row in rows} == {2}


def test_a_leader_that_leaves_is_not_missed(duo: Duo) -> None:
    duo.set(Behaviour(tokens=6, hold_at=2))

    async def story(clients: Clients) -> None:
        async with clients.open() as leader:
            await leader.read(2)
            member = await clients.stream()
            await member.read(2)
        await asyncio.to_thread(duo.rows, 1)
        duo.release()
        assert await member.read() == text_of(6)

    tell(duo.gateway, story)
    left, stayed = duo.rows(2)
    assert (left.outcome, left.merged_into, left.merged_members) == ("cancelled", stayed.id, 2)
    assert (stayed.outcome, stayed.merged_into, stayed.output_tokens) == ("ok", None, 6)


def test_an_attempt_that_fails_before_its_first_byte_is_made_elsewhere_for_all(duo: Duo) -> None:
    duo.set(Behaviour(tokens=3, hold_at=0))

    async def story(clients: Clients) -> None:
        asked = [asyncio.ensure_future(clients.post("/chat/completions", BODY)) for _ in range(5)]
        await _until(lambda: _in_flight(duo) == 5, "all have joined")
        failing = duo.a if duo.a.received else duo.b
        healthy = duo.b if failing is duo.a else duo.a
        healthy.behaviour = Behaviour(tokens=3)
        failing.die()
        answers = await asyncio.gather(*asked)
        texts = {answer.json()["choices"][0]["message"]["content"] for answer in answers}
        assert texts == {text_of(3)}

    tell(duo.gateway, story)
    assert calls(duo) == 2
    assert {row.attempts for row in duo.rows(5)} == {2}


def _in_flight(duo: Duo) -> int:
    return int(duo.gateway.admin("/api/v1/status")["in_flight"])


def test_a_stream_that_breaks_ends_for_all_with_an_error(duo: Duo) -> None:
    duo.set(Behaviour(tokens=6, hold_at=3, fault="reset", fault_at=3))

    async def story(clients: Clients) -> None:
        readers = [await clients.stream() for _ in range(3)]
        await asyncio.gather(*(reader.read(3) for reader in readers))
        duo.release()
        assert {await reader.read() for reader in readers} == {text_of(3)}
        assert all(r.error and r.error["code"] == "upstream_failed" for r in readers)

    tell(duo.gateway, story)
    rows = duo.rows(3)
    assert {row.outcome for row in rows} == {"failed"}
    assert len([row for row in rows if row.merged_into is None]) == 1


@pytest.mark.parametrize(
    ("bodies", "headers", "expected"),
    [
        pytest.param([{"temperature": 0.7}] * 2, [{}] * 2, 2, id="chance decides"),
        pytest.param(
            [{"temperature": 0.7}] * 2,
            [{"x_mileage_merge": "yes"}] * 2,
            1,
            id="chance decides, and both ask for it",
        ),
        pytest.param([{}, {}], [{}, {"x_mileage_merge": "no"}], 2, id="one does not want to"),
        pytest.param([{}, {"stream": False}], [{}] * 2, 2, id="one is no stream"),
        pytest.param([{}, {"seed": 1}], [{}] * 2, 2, id="one has a seed"),
        pytest.param([{}, {"model": "gpt-4o"}], [{}] * 2, 1, id="one uses an alias"),
        pytest.param([{}, {"store": True}], [{}] * 2, 2, id="one is to be stored"),
    ],
)
def test_which_requests_share_a_generation(
    duo: Duo, bodies: list[dict[str, Any]], headers: list[dict[str, str]], expected: int
) -> None:
    duo.set(Behaviour(tokens=3, hold_at=1))

    async def story(clients: Clients) -> None:
        tasks = []
        for body, names in zip(bodies, headers, strict=True):
            tasks.append(asyncio.ensure_future(ask(clients, STREAM | body, names)))
            await _until(lambda: calls(duo) >= 1, "the first arrived")
        if expected == 2:
            await _until(lambda: calls(duo) == 2, "both are asked for")
        else:
            await _until(lambda: _in_flight(duo) == 2, "both have arrived")
        duo.release()
        await asyncio.gather(*tasks)

    async def ask(clients: Clients, body: dict[str, Any], names: dict[str, str]) -> None:
        if body["stream"]:
            async with clients.open(body, **names) as reader:
                assert await reader.read() == text_of(3)
        else:
            answer = await clients.post("/chat/completions", body, **names)
            assert answer.json()["choices"][0]["message"]["content"] == text_of(3)

    tell(duo.gateway, story)
    assert calls(duo) == expected


def test_an_unknown_wish_is_refused_by_name(duo: Duo) -> None:
    async def story(clients: Clients) -> None:
        answer = await clients.post("/chat/completions", BODY, x_mileage_merge="maybe")
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "x-mileage-merge"

    tell(duo.gateway, story)


def test_tenants_share_nothing_unless_the_operator_says_so(tmp_path: Path) -> None:
    keys = {"alpha": "sk-a", "beta": "sk-b"}
    tenants = "".join(
        f'[tenants.{name}]\nkey_hashes = ["{key_hash(key)}"]\n' for name, key in keys.items()
    )
    for across, expected in ((False, 2), (True, 1)):
        with ScriptedEngine() as engine:
            engine.behaviour = Behaviour(tokens=3, hold_at=1)
            merging = f"[merging]\nacross_tenants = {str(across).lower()}\n"
            directory = tmp_path / str(across)
            directory.mkdir()
            with Gateway(directory, engines=[engine.url], config=merging + tenants) as gateway:
                tell(gateway, partial(_two_tenants, engine, expected))
                rows = gateway.requests(2)
        assert {row.tenant for row in rows} == set(keys)
        assert len([row for row in rows if row.merged_into is None]) == expected


async def _two_tenants(engine: ScriptedEngine, expected: int, clients: Clients) -> None:
    readers = [await clients.stream(authorization=f"Bearer sk-{key}") for key in "ab"]
    await asyncio.gather(*(reader.read(1) for reader in readers))
    assert len(engine.received) == expected
    engine.release()
    assert {await reader.read() for reader in readers} == {text_of(3)}


def test_a_burst_of_embeddings_needs_few_calls(duo: Duo) -> None:
    duo.set(Behaviour(first_token_s=0.02))

    async def story(clients: Clients) -> None:
        async def embed(text: str) -> None:
            answer = await clients.post("/embeddings", {"model": "toy", "input": text})
            assert answer.status_code == 200, answer.text
            (item,) = answer.json()["data"]
            assert (item["index"], item["embedding"]) == (0, embedding_of(text))

        await asyncio.gather(*(embed(f"text {number}") for number in range(1000)))

    tell(duo.gateway, story)
    assert calls(duo) <= 1000 / 5
    rows = duo.rows(1000)
    assert {row.outcome for row in rows} == {"ok"}
    assert sum(row.prompt_tokens or 0 for row in rows) == 1000 * PROMPT_TOKENS
    assert {row.merged_into for row in rows} == {None}
    assert max(row.merged_members or 1 for row in rows) > 16


def test_one_bad_text_fails_no_other_of_its_batch(duo: Duo) -> None:
    duo.set(Behaviour(first_token_s=0.02, bad_input="bad"))
    texts = [*(f"text {number}" for number in range(60)), "bad"]

    async def story(clients: Clients) -> None:
        async def embed(text: str) -> int:
            answer = await clients.post("/embeddings", {"model": "toy", "input": [text, "more"]})
            if answer.status_code == 200:
                data = sorted(answer.json()["data"], key=lambda item: int(item["index"]))
                vectors = [item["embedding"] for item in data]
                assert vectors == [embedding_of(text), embedding_of("more")]
            return answer.status_code

        statuses = await asyncio.gather(*map(embed, texts))
        assert statuses == [200] * 60 + [400]

    tell(duo.gateway, story)
    assert {row.outcome for row in duo.rows(61)} == {"ok"}
