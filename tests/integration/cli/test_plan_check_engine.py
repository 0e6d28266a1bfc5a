"""`mileage plan check` against an engine that runs: what it tells of itself, and a dead one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import EngineError
from mileage.planner.candidate import Candidate
from tests.support.locked_vllm import KEY, LockedVllm

PAGE = (
    'vllm:num_requests_running{engine="0",model_name="m"} 4\n'
    'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000",'
    'cache_dtype="auto",enable_prefix_caching="False"} 1\n'
)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    pick = {
        "config": msgspec.to_builtins(Candidate(gpu="L40S", kv="fp8")),
        "usd_per_mtok": 0.34,
        "gpu_h_per_mtok": 0.2,
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"model": "llama-3.1-8b", "picks": {"cheapest": pick}}))
    return str(path)


def check(*words: str) -> Any:
    options = ("--by", "batch", "--api-key-env", "ENGINE_KEY", "--json")
    return CliRunner().invoke(app, ["plan", "check", *words, *options])


def test_what_the_engine_tells_is_compared_and_the_rest_is_not_known(plan: str) -> None:
    with LockedVllm(PAGE) as engine:
        result = check(plan, engine.url)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found = json.loads(result.stdout)
    assert {each["field"] for each in found["differences"]} == {"kv", "prefix_cache"}
    assert found["differences"][0]["field"] == "kv"
    assert {"gpu", "weights", "running_max"} <= set(found["unknown"])


def test_an_engine_that_does_not_answer_is_told(plan: str) -> None:
    with LockedVllm(PAGE) as engine:
        url = engine.url
    assert isinstance(check(plan, url).exception, EngineError)
