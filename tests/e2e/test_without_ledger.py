"""A gateway that keeps no ledger, and one that shares no GPU time out: both serve as ever."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.local_http import LOCAL

BODY = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}


def ask(gateway: Gateway) -> httpx.Response:
    return httpx.post(f"{gateway.url}/chat/completions", json=BODY, **LOCAL)


def metrics(gateway: Gateway) -> str:
    return httpx.get(f"{gateway.listening.admin_url}/metrics", **LOCAL).text


def counted(page: str, name: str) -> float:
    """The sum of a family's samples."""
    families = text_string_to_metric_families(page)
    return sum(s.value for family in families for s in family.samples if s.name == name)


def test_without_a_ledger_requests_are_answered_and_counted_and_nothing_is_kept(
    tmp_path: Path,
) -> None:
    config = "[ledger]\nenabled = false\n"
    with ScriptedEngine() as engine, Gateway(tmp_path, engines=[engine.url], config=config) as it:
        assert it.listening.ledger is None
        assert [ask(it).status_code for _ in range(3)] == [200] * 3

        wait_until(lambda: counted(metrics(it), "mileage_requests_total") == 3, "they are counted")
        page = metrics(it)
        assert counted(page, "mileage_ledger_records_total") == 0
        assert "mileage_ledger_rows_total" not in page  # neither up nor down: it is not there
        assert it.admin("/api/v1/status")["ledger"] is None
        assert it.stop() == 0
    assert "ledger   not kept" in it.log
    assert not list((it.state / "mileage").glob("ledger*"))


def test_without_attribution_requests_are_kept_and_have_no_gpu_time(tmp_path: Path) -> None:
    config = "[attribution]\nenabled = false\n"
    with ScriptedEngine() as engine, Gateway(tmp_path, engines=[engine.url], config=config) as it:
        assert ask(it).status_code == 200
        (row,) = it.requests(1)
        assert row.outcome == "ok"
        ledger = it.ledger
        assert it.stop() == 0
    told = run_mileage("cost", "--ledger", ledger, "--since", "1h", "--json", state=it.state)
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert document["gpu_ns_total"] == 0
    assert sum(account["requests"] for account in document["accounts"]) == 1
    proved = run_mileage("cost", "verify", "--ledger", ledger, state=it.state)
    assert proved.returncode == 3  # nothing is wrong, and nothing is proved
    assert "1 not booked yet" in proved.stdout


def test_a_budget_without_a_ledger_is_refused_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "mileage.toml"
    path.write_text(
        "[ledger]\nenabled = false\n"
        f'[tenants.team]\nkey_hashes = ["sha256:{"ab" * 32}"]\n'
        'budgets = [{amount = 1, unit = "tokens", per = "day"}]\n'
    )
    told = run_mileage("serve", "--config", str(path), state=tmp_path / "state")
    assert told.returncode == 2
    assert "tenants.team.budgets" in told.stderr
    assert "ledger.enabled" in told.stderr


def test_requests_cannot_hang_on_a_record_that_is_never_made(tmp_path: Path) -> None:
    path = tmp_path / "mileage.toml"
    path.write_text('[ledger]\nenabled = false\non_failure = "closed"\n')
    told = run_mileage("serve", "--config", str(path), state=tmp_path / "state")
    assert told.returncode == 2
    assert "ledger.on_failure" in told.stderr
