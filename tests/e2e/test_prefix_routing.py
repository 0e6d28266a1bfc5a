"""Routing by prefixes in a real gateway: conversations stay where they are, tenants have salts."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from mileage.gateway.keys import key_hash
from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, run_mileage
from tests.support.local_http import LOCAL

KEYS = {"red": "sk-mileage-" + "r" * 43, "blue": "sk-mileage-" + "b" * 43}
CONVERSATIONS, TURNS = 8, 4


@pytest.fixture
def engines() -> Iterator[list[ScriptedEngine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ScriptedEngine()) for _ in range(2)]


def config() -> str:
    tenants = (
        f'[tenants.{name}]\nkey_hashes = ["{key_hash(key)}"]\n' for name, key in KEYS.items()
    )
    return '[routing]\npolicy = "prefix"\n[server]\ncache_salt = "tenant"\n' + "".join(tenants)


def messages(conversation: int, turns: int) -> list[dict[str, str]]:
    said = [{"role": "system", "content": f"You are assistant number {conversation}. " * 60}]
    for turn in range(turns):
        said.append({"role": "user", "content": f"Question {turn}. " * 100})
        said.append({"role": "assistant", "content": f"Answer {turn}. " * 100})
    return [*said, {"role": "user", "content": "And then?"}]


def test_conversations_stay_on_their_replica_and_tenants_have_salts_of_their_own(
    tmp_path: Path, engines: list[ScriptedEngine]
) -> None:
    urls = [engine.url for engine in engines]
    with Gateway(tmp_path, engines=urls, config=config()) as gateway:
        gateway.wait_up()
        with httpx.Client(**LOCAL) as client:
            for turn in range(TURNS):
                for conversation in range(CONVERSATIONS):
                    key = KEYS["red" if conversation % 2 else "blue"]
                    body = {"model": "toy", "messages": messages(conversation, turn)}
                    answer = client.post(
                        f"{gateway.url}/chat/completions",
                        json=body,
                        headers={"authorization": f"Bearer {key}"},
                    )
                    assert answer.status_code == 200, answer.text
        secret = gateway.state / "mileage" / "cache-salt-key"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert secret.read_text().strip() not in gateway.log
        places: dict[str, set[int]] = {}
        salts: dict[int, set[str]] = {0: set(), 1: set()}
        for place, engine in enumerate(engines):
            for received in engine.received:
                sent: dict[str, Any] = json.loads(received.body)
                system = sent["messages"][0]["content"]
                places.setdefault(system, set()).add(place)
                salts[int(system.split()[4].rstrip(".")) % 2].add(sent["cache_salt"])
        assert len(places) == CONVERSATIONS
        assert all(len(found) == 1 for found in places.values())
        assert {place for found in places.values() for place in found} == {0, 1}
        assert all(len(found) == 1 for found in salts.values())
        assert salts[0] != salts[1]
    # The journal holds the blocks, and gives the same decisions again.
    journal = gateway.state / "mileage" / "journal"
    replayed = run_mileage("replay", str(journal), "--json", state=gateway.state)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
