"""Budgets hold in a running gateway: bursts, several workers, deaths, restarts and reloads."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.engine_answers import PROMPT_TOKENS
from tests.support.gateway import Gateway, wait_until
from tests.support.local_http import LOCAL

TOKENS = 16
COST = PROMPT_TOKENS + TOKENS
BODY = {
    "model": "toy",
    "messages": [{"role": "user", "content": "how are you?"}],
    "max_tokens": TOKENS,
    "temperature": 1,
}
REQUESTS = 500


def config(engine: ScriptedEngine, budgets: str, *, more: str = "", workers: int = 1) -> str:
    return f"""
[server]
workers = {workers}
[tenants.default]
{more}
budgets = [{budgets}]
[costs]
usd_per_gpu_hour = 3.6
[[engines]]
kind = "vllm"
url = "{engine.url}"
"""


def tokens(amount: int, per: str = "month") -> str:
    return f'{{ amount = {amount}, unit = "tokens", per = "{per}" }}'


async def _send(url: str, count: int, body: dict[str, Any]) -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(limits=limits, **LOCAL) as client:
        return await asyncio.gather(
            *(client.post(f"{url}/chat/completions", json=body) for _ in range(count))
        )


def send(gateway: Gateway, count: int = 1, **fields: Any) -> list[httpx.Response]:
    """So many requests at once."""
    return asyncio.run(_send(gateway.url, count, {**BODY, **fields}))


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


@pytest.mark.parametrize("workers", [1, 2])
def test_500_requests_at_once_against_a_budget_for_100(tmp_path: Path, workers: int) -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=TOKENS, first_token_s=0.02)
        text = config(engine, tokens(100 * COST), workers=workers)
        with Gateway(tmp_path, config=text) as gateway:
            answers = send(gateway, REQUESTS)
            statuses = Counter(answer.status_code for answer in answers)
            rows = gateway.requests(REQUESTS)
        spent = sum((r.prompt_tokens or 0) + (r.output_tokens or 0) for r in rows)
        assert spent <= 100 * COST
        assert statuses[200] >= 95
        assert statuses[200] + statuses[429] == REQUESTS
        for answer in answers:
            if answer.status_code == 429:
                assert code(answer) == "insufficient_quota"
                assert int(answer.headers["retry-after"]) > 0
                assert "tokens per month" in answer.json()["error"]["message"]
        assert engine.mistakes == []


def test_what_was_spent_is_remembered_over_a_restart_and_a_workers_death(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=TOKENS)
        text = config(engine, tokens(100 * COST))
        with Gateway(tmp_path, config=text) as gateway:
            assert Counter(a.status_code for a in send(gateway, 40)) == {200: 40}
        with Gateway(tmp_path, config=text) as gateway:
            assert Counter(a.status_code for a in send(gateway, 40)) == {200: 40}
            (worker,) = gateway.workers()
            worker.kill()
            wait_until(lambda: gateway.workers() not in ([], [worker]), "a new worker")
            # 80 of 100 are spent, and the death has cost nothing.
            statuses = Counter(a.status_code for a in send(gateway, 60))
        assert 15 <= statuses[200] <= 20
        assert statuses[200] + statuses[429] == 60


@pytest.mark.parametrize(
    ("budget", "code_of_unit"),
    [
        pytest.param('{ amount = 1.5, unit = "gpu_s", per = "month" }', "GPU-seconds", id="gpu_s"),
        pytest.param('{ amount = 0.0015, unit = "usd", per = "month" }', "USD", id="usd"),
    ],
)
def test_gpu_seconds_and_usd_are_used_up(tmp_path: Path, budget: str, code_of_unit: str) -> None:
    """One request at a time takes 50 ms of the GPU, at 0.001 USD per second."""
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=TOKENS, first_token_s=0.05)
        with Gateway(tmp_path, config=config(engine, budget)) as gateway:
            sent, last = 0, None
            while last is None and sent < 100:
                sent += 1
                (answer,) = send(gateway)
                last = answer if answer.status_code == 429 else None
            rows = gateway.requests(sent)
        assert last is not None, "the budget is never used up"
        assert code_of_unit in last.json()["error"]["message"]
        spent_s = sum(row.gpu_ns or 0 for row in rows) / 1e9
        # What the last one takes beyond what was reserved for it is not known before.
        most_s = max(row.gpu_ns or 0 for row in rows) / 1e9
        assert 1.0 < spent_s <= 1.5 + max(0.0, most_s - 0.05)
        assert sum(row.cost_nano_usd or 0 for row in rows) == pytest.approx(spent_s * 1e6, rel=0.01)


def test_a_budget_that_a_reload_raises_lets_requests_in_again(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=TOKENS)
        with Gateway(tmp_path, config=config(engine, tokens(40 * COST))) as gateway:
            before = Counter(a.status_code for a in send(gateway, 60))
            (tmp_path / "mileage.toml").write_text(config(engine, tokens(60 * COST)))
            gateway.admin("/api/v1/config/reload", "POST")
            after = Counter(a.status_code for a in send(gateway, 60))
        assert 35 <= before[200] <= 40
        assert 55 <= before[200] + after[200] <= 60


def test_rates_are_told_in_headers_and_held(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=TOKENS)
        rates = "requests_per_min = 5\ntokens_per_min = 100000"
        with Gateway(tmp_path, config=config(engine, "", more=rates)) as gateway:
            (first,) = send(gateway)
            assert first.headers["x-ratelimit-limit-requests"] == "5"
            assert first.headers["x-ratelimit-remaining-requests"] == "4"
            assert first.headers["x-ratelimit-limit-tokens"] == "100000"
            answers = [send(gateway)[0] for _ in range(5)]
            assert [a.status_code for a in answers] == [200] * 4 + [429]
            refused = answers[-1]
            assert code(refused) == "rate_limit_exceeded"
            assert 1 <= int(refused.headers["retry-after"]) <= 12
            assert refused.headers["x-ratelimit-remaining-requests"] == "0"
            assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
