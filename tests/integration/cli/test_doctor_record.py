"""`mileage doctor` beside an engine that wants a key: real requests, a real directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from tests.support.locked_vllm import KEY, LockedVllm

PAGE = (
    'vllm:num_requests_running{engine="0",model_name="m"} 4\n'
    'vllm:num_requests_waiting{engine="0",model_name="m"} 0\n'
    'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000"} 1\n'
)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", KEY)


def test_without_the_key_nothing_is_known() -> None:
    with LockedVllm(PAGE) as engine:
        code, out = run(engine.url, "--for", "2s", "--json")
    assert code == 3
    assert "401" in str(json.loads(out)["sources"])


def test_a_record_keeps_the_pages_and_no_key(tmp_path: Path) -> None:
    to = tmp_path / "dump"
    with LockedVllm(PAGE) as engine:
        code, _ = run(
            "record", engine.url, "--to", str(to), "--for", "2s", "--api-key-env", "ENGINE_KEY"
        )
    assert code == 0
    written = [path for path in to.rglob("*") if path.is_file()]
    assert all(KEY not in path.read_text() for path in written)
    assert (to / "engine-1" / "page-01.txt").read_text() == PAGE
    _, out = run("--dump", str(to), "--json")
    facts = json.loads(out)["facts"]
    assert facts["signals"]["requests_running"] == 4
    assert facts["engine"]["version"] == "0.10.1"


def test_facts_beside_a_url_add_what_was_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    told = {
        "model": {"params_b": 7},
        "settings": {"block_size": 32},
        "signals": {"requests_running": 9},
    }
    path.write_text(json.dumps(told))
    with LockedVllm(PAGE) as engine:
        options = ("--api-key-env", "ENGINE_KEY", "--facts", str(path), "--for", "2s", "--json")
        _, out = run(engine.url, *options)
    document = json.loads(out)
    assert document["facts"]["model"]["params_b"] == 7
    assert document["facts"]["signals"]["requests_running"] == 4
    assert document["facts"]["settings"]["block_size"] == 16
    assert [each["fact"] for each in document["conflicts"]] == ["settings.block_size"]
