"""A real vLLM's cache: its events, a gap that it tells again, emptying, and salts of tenants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from mileage.gateway.cache_salt import CacheSalts, CacheSaltSettings
from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.scrape.kv_events import KvEvents
from tests.support.gateway import free_port
from tests.support.vllm_server import VllmServer, tiny_model

pytestmark = pytest.mark.heavy

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")

PATIENCE_S = 120.0
TOKENS = 96
"""Of a prompt: three blocks of 32, the smallest that the CPU build has."""


class Site:
    """The server, and where its events are."""

    def __init__(self, server: VllmServer, events: int, replay: int) -> None:
        self.server = server
        self.url, self.replay_url = (f"tcp://127.0.0.1:{port}" for port in (events, replay))

    def listener(self) -> tuple[KvEvents, BlockDirectory]:
        """Hears nothing yet."""
        directory = BlockDirectory()
        return KvEvents(self.url, self.replay_url, directory, replica="vllm"), directory

    async def ask(self, first: int, body: Callable[[bytes], bytes] = bytes) -> int:
        """Complete a prompt of tokens that begins with this one; gives what of it was cached."""
        prompt = [first, *range(100, 99 + TOKENS)]
        fields = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "temperature": 0}
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            answer = await client.post(
                f"{self.server.url}/v1/completions",
                content=body(msgspec.json.encode(fields)),
                headers={"content-type": "application/json"},
            )
        assert answer.status_code == 200, answer.text
        details: dict[str, Any] = answer.json()["usage"].get("prompt_tokens_details") or {}
        return int(details.get("cached_tokens") or 0)

    async def empty(self) -> None:
        """Empty the cache."""
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            answer = await client.post(f"{self.server.url}/reset_prefix_cache")
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[Site]:
    """A server of a tiny model that publishes its cache events."""
    directory = tmp_path_factory.mktemp("vllm")
    events, replay = free_port(), free_port()
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{events}",
        "replay_endpoint": f"tcp://*:{replay}",
    }
    arguments = (
        *("--load-format", "dummy", "--max-model-len", "512", "--max-num-seqs", "4"),
        *("--enable-prefix-caching", "--block-size", "32", "--enable-prompt-tokens-details"),
        *("--kv-events-config", json.dumps(config)),
    )
    with VllmServer(
        vllm_python,
        tiny_model(vllm_python, directory),
        directory,
        *arguments,
        name="tiny",
        environment={"VLLM_SERVER_DEV_MODE": "1"},
    ) as server:
        yield Site(server, events, replay)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- what is waited for tells nobody
            await asyncio.sleep(0.05)


async def heard(site: Site, events: KvEvents, first: int) -> int:
    """Ask with prompts from `first` on until one of them was heard of; gives the next one."""
    before = events.totals.batches
    async with asyncio.timeout(PATIENCE_S):
        while events.totals.batches == before:
            await site.ask(first)
            first += 1
            await asyncio.sleep(0.5)
    return first


def test_a_late_listener_is_told_all_that_it_missed(site: Site) -> None:
    async def run() -> None:
        early, known = site.listener()
        early.start()
        try:
            following = await heard(site, early, 1)
            assert known.held_by("vllm")
            for first in range(following, following + 3):
                await site.ask(first)
            late, told = site.listener()
            late.start()
            try:
                await heard(site, late, following + 3)
                await until(lambda: late.feed.sequence.next == early.feed.sequence.next)
                assert late.totals.gaps == 1
                assert late.totals.lost == late.totals.bad == 0
                assert late.totals.replayed >= 4
                assert set(told.held_by("vllm")) == set(known.held_by("vllm"))
                assert late.feed.unknown_total == 0
                assert late.feed.block_tokens == 32
                cleared = late.feed.cleared_total
                await site.empty()
                await heard(site, late, following + 40)
                await until(lambda: late.feed.cleared_total > cleared)
            finally:
                await late.stop()
        finally:
            await early.stop()

    asyncio.run(run())


def test_tenants_with_salts_find_only_what_is_theirs(site: Site) -> None:
    salts = CacheSalts(CacheSaltSettings(key="a-key-of-this-test"))

    async def run() -> None:
        assert await site.ask(77, lambda raw: salts.put(raw, "a")) == 0
        assert await site.ask(77, lambda raw: salts.put(raw, "a")) >= 64
        assert await site.ask(77, lambda raw: salts.put(raw, "b")) == 0
        assert await site.ask(77) == 0

    asyncio.run(run())
