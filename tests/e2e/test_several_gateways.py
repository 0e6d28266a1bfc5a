"""Two gateways on one PostgreSQL database: budgets hold, deaths and outages lose nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from mileage.storage.queries import LedgerReader
from mileage.storage.usage_reader import UsageReader
from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.engine_answers import PROMPT_TOKENS
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.postgres import PostgresServer, postgres_server, rows_of

pytestmark = pytest.mark.heavy

TOKENS = 16
COST = PROMPT_TOKENS + TOKENS
BODY = {
    "model": "toy",
    "messages": [{"role": "user", "content": "how are you?"}],
    "max_tokens": TOKENS,
    "temperature": 1,
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


class Site:
    """Gateways of one site: an engine, a database, and a directory for each."""

    def __init__(self, directory: Path, engine: ScriptedEngine, address: str, amount: int) -> None:
        self.directory, self.address = directory, address
        self._config = f"""
[tenants.default]
budgets = [{{ amount = {amount}, unit = "tokens", per = "month" }}]
[ledger]
database = "{address}"
[attribution]
window_s = 5
[[engines]]
kind = "vllm"
name = "shared"
url = "{engine.url}"
"""

    def gateway(self, name: str) -> Gateway:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        return Gateway(directory, config=self._config)

    def stored(self, count: int) -> None:
        def rows() -> bool:
            return bool(rows_of(self.address, "SELECT count(*) FROM requests")[0][0] >= count)

        wait_until(rows, f"{count} rows", timeout_s=60)

    def spent(self) -> int:
        with closing(LedgerReader(self.address)) as reader:
            return reader.spent("default", since_utc_ns=0).tokens


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=TOKENS, first_token_s=0.02)
        yield engine


async def _send(urls: list[str], count: int) -> list[int]:
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:

        async def one(number: int) -> int:
            try:
                url = urls[number % len(urls)]
                return (await client.post(f"{url}/chat/completions", json=BODY)).status_code
            except httpx.HTTPError:
                return 0

        return await asyncio.gather(*map(one, range(count)))


def send(gateways: list[Gateway], count: int) -> Counter[int]:
    """So many requests at once, to each in turn; how many got which status, 0 for no answer."""
    return Counter(asyncio.run(_send([gateway.url for gateway in gateways], count)))


def test_a_budget_holds_over_both_and_over_a_death(
    server: PostgresServer, engine: ScriptedEngine, tmp_path: Path
) -> None:
    site = Site(tmp_path, engine, server.database("budget"), 100 * COST)
    with site.gateway("a") as a:
        first = send([a], 20)
        with site.gateway("b") as b:
            both = send([a, b], 40)
            assert first + both == {200: 60}
            a.kill_all()
            # What it had spent is known, what it held beside is not lent to anybody.
            alone = send([b], 60)
            assert alone[200] + alone[429] == 60
            assert site.spent() <= 100 * COST
            with site.gateway("a") as again:
                site.stored(120)
                wait_until(lambda: send([again, b], 4)[429] == 4, "the rest is spent", 60)
                site.stored(124)
                # It is back, and what it had not spent was spent by either.
                assert 95 * COST <= site.spent() <= 100 * COST
                document = again.admin("/api/v1/status")
                assert document["ledger"]["ok"], document
    with closing(LedgerReader(site.address)) as reader:
        assert reader.verify() == []
        answered = [row for row in reader.by_arrival() if row.outcome == "ok"]
    assert len(answered) * COST == site.spent()


def test_200_requests_at_once_to_two_gateways_against_a_budget_for_100(
    server: PostgresServer, engine: ScriptedEngine, tmp_path: Path
) -> None:
    site = Site(tmp_path, engine, server.database("burst"), 100 * COST)
    with site.gateway("a") as a, site.gateway("b") as b:
        statuses = send([a, b], 200)
        site.stored(200)
    assert statuses[200] + statuses[429] == 200
    assert statuses[200] * COST == site.spent()
    assert 90 <= statuses[200] <= 100


def test_the_database_is_restarted_and_gateways_die_and_no_request_is_missed(
    server: PostgresServer, engine: ScriptedEngine, tmp_path: Path
) -> None:
    site = Site(tmp_path, engine, server.database("outage"), 10_000 * COST)
    with site.gateway("a") as a, site.gateway("b") as b:
        assert send([a, b], 40) == {200: 40}
        site.stored(40)
        server.stop()
        try:
            assert send([a, b], 40) == {200: 40}, "requests go on"
            wait_until(lambda: not a.admin("/api/v1/status")["ledger"]["ok"], "it shows")
        finally:
            server.start()
        b.kill_all()
        assert send([a], 20) == {200: 20}
        with site.gateway("b"):
            site.stored(100)
            wait_until(lambda: a.admin("/api/v1/status")["ledger"]["ok"], "it works again")
    rows = rows_of(
        site.address, "SELECT outcome, count(*), count(DISTINCT id) FROM requests GROUP BY 1"
    )
    assert rows == [("ok", 100, 100)]
    assert site.spent() == 100 * COST
    listed = run_mileage(
        *("requests", "--config", str(tmp_path / "a" / "mileage.toml"), "--json", "--count"),
        state=tmp_path / "nobody",
    )
    document = json.loads(listed.stdout)
    assert document["counts"][0]["requests"] == 100
    assert "mileage@" not in document["ledger"]


def test_gpu_time_is_shared_out_by_one_and_its_sums_are_exact(
    server: PostgresServer, engine: ScriptedEngine, tmp_path: Path
) -> None:
    site = Site(tmp_path, engine, server.database("books"), 10_000 * COST)

    def settled() -> int:
        rows = rows_of(site.address, "SELECT until_utc_ns FROM settled WHERE replica = ''")
        return rows[0][0] if rows else 0

    with site.gateway("a") as a, site.gateway("b") as b:
        assert send([a, b], 30) == {200: 30}
        a.kill_all()  # it leads, as it was there first
        assert send([b], 10) == {200: 10}
        with site.gateway("a"):
            begun_ns = time.time_ns()
            wait_until(lambda: settled() > begun_ns, "the other one goes on", 60)
    with closing(UsageReader(site.address)) as reader:
        verdict = reader.verify()
        (row,) = reader.usage(0, time.time() + 3600, by=("tenant",), as_of_utc_s=0)
    assert verdict.problems == []
    assert (verdict.requests, row.requests, row.gpu_ns > 0) == (40, 40, True)
    checked = run_mileage(
        *("cost", "verify", "--config", str(tmp_path / "a" / "mileage.toml"), "--json"),
        state=tmp_path / "nobody",
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
