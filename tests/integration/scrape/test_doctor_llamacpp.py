"""A real llama.cpp server, watched while it generates: the facts that come of it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.engine_record import EngineRecord
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine
from mileage.engines.embedded.resolve import resolve_model
from mileage.scrape.doctor_engine import watch_engine
from mileage.wire.fetch import fetch
from tests.support.engine_pages import checked

CONFIG = EmbeddedConfig(slots=2, context_tokens=512, threads=1)
REQUEST = {"messages": [{"role": "user", "content": "Count to a thousand."}]}
ANSWERS = (400, 230)
"""Tokens, by client: while one is between two answers, the other one keeps the engine busy, without
which a look at that moment would leave the time of a step untold."""
WINDOW_S = 4.0


def no_progress(label: str, done_bytes: int, total_bytes: int | None) -> None: ...


async def watched(model: Path, state_dir: Path) -> EngineRecord:
    """The record of an engine that answers two clients, one request after another each."""
    engine = EmbeddedEngine(
        CONFIG, model_path=model, state_dir=state_dir, on_change=lambda status: None
    )
    await engine.start()

    async def load(tokens: int) -> None:
        body = msgspec.json.encode({"model": engine.served_name, "max_tokens": tokens, **REQUEST})
        while True:
            await fetch(
                f"{engine.url}/v1/chat/completions",
                method="POST",
                headers=[("authorization", engine.authorization)],
                body=body,
                timeout_s=120.0,
            )

    clients = [asyncio.create_task(load(tokens)) for tokens in ANSWERS]
    try:
        await asyncio.sleep(0.5)
        return await watch_engine(
            engine.url, window_s=WINDOW_S, authorization=engine.authorization, period_s=0.5
        )
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await engine.stop(10.0)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is known of it after some seconds."""
    model = resolve_model(EmbeddedConfig(), progress=no_progress, environ=os.environ)
    record = asyncio.run(watched(model, tmp_path_factory.mktemp("engine")))
    return checked(merge_facts(engine_facts(record)).document)


def test_what_it_is_and_how_it_is_set(document: dict[str, Any]) -> None:
    assert document["engine"]["name"] == "llama.cpp"
    assert 0.1 < document["model"]["params_b"] < 1
    assert 0 < document["model"]["weights_gib"] < 1
    assert document["settings"]["max_num_seqs"] == 2
    assert document["settings"]["max_model_len"] == 512


def test_what_it_does(document: dict[str, Any]) -> None:
    signals = document["signals"]
    assert 1 <= signals["requests_running"] <= len(ANSWERS)
    assert signals["requests_waiting"] == 0
    assert 0 < signals["step_time_s"] < 2
    assert signals.get("output_tokens_per_s") != 0  # requests ran: not known, where none ended
