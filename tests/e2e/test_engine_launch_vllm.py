"""`mileage engine launch` with a real vLLM: ready after a token, and after a kill; nothing left."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from mileage.engines.launch.start_history import StartHistory
from tests.support.gateway import free_port, wait_until
from tests.support.launching import Launching
from tests.support.vllm_server import ENVIRONMENT, START_S, tiny_model

pytestmark = pytest.mark.heavy

SLOTS, STEP_TOKENS, LENGTH = 8, 512, 1024


def engine_core(family: list[psutil.Process]) -> psutil.Process:
    """vLLM's process that runs the model, by the title that it gives itself."""
    (core,) = (process for process in family if "EngineCore" in " ".join(process.cmdline()))
    return core


def test_a_real_start_and_the_death_of_its_engine_core(tmp_path: Path, vllm_python: Path) -> None:
    model = tiny_model(vllm_python, tmp_path)
    port, ready_port = free_port(), free_port()
    own = (
        *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(LENGTH), "--max-num-seqs", str(SLOTS)),
        *("--max-num-batched-tokens", str(STEP_TOKENS), "--no-enable-prefix-caching"),
    )
    with Launching(
        tmp_path,
        "vllm",
        *("--python", str(vllm_python), "--model", str(model), "--port", str(port)),
        *("--ready-port", str(ready_port), "--log", str(tmp_path / "vllm.log")),
        *("--ready-timeout-s", str(START_S), "--restarts", "1", "--preload", "auto", "--"),
        *own,
        environment=ENVIRONMENT,
    ) as launching:
        preload = launching.event("preload", START_S)["result"]
        assert "has no weights" in preload["stopped"]
        ready = launching.event("ready", START_S)
        names = [event["event"] for event in launching.events]
        assert names.index("up") < names.index("warmed") < names.index("ready")
        shapes = [
            (event["took"]["prompt_tokens"], event["took"]["batch"])
            for event in launching.events
            if event["event"] == "warmed"
        ]
        assert shapes == [(1, 1), (STEP_TOKENS, 1), (16, SLOTS)]
        assert all(
            event["took"]["failed"] is None
            for event in launching.events
            if event["event"] == "warmed"
        )
        times = ready["times"]
        for name in ("import_s", "engine_process_s", "engine_init_s", "server_up_s", "silent_s"):
            assert times[name] > 0, name
        assert times["compile_s"] is None  # eager
        assert times["graph_capture_s"] is None  # a CPU
        assert times["import_s"] < times["server_up_s"] < times["first_token_s"]
        assert times["first_token_s"] <= times["ready_s"]
        answer = httpx.get(f"http://127.0.0.1:{ready_port}/ready")
        assert answer.status_code == 200
        assert answer.json()["engine_version"][0].isdigit()
        assert "Application startup complete" in (tmp_path / "vllm.log").read_text()
        family = launching.family()
        assert len(family) >= 3  # the keeper, the API server, the engine
        engine_core(family).kill()
        wait_until(lambda: launching.count("ready") == 2, "ready again", START_S)
        names = [event["event"] for event in launching.events]
        again = names[names.index("ready") + 1 :]
        assert again[:3] == ["ended", "restarting", "started"]
        assert not any(process.is_running() for process in family)
        assert httpx.get(f"http://127.0.0.1:{ready_port}/ready").json()["attempt"] == 2
        asked = {"model": str(model), "prompt": [5, 6], "max_tokens": 1}
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=asked, timeout=START_S)
        assert answer.status_code == 200
        family = launching.family()
        launching.signal(signal.SIGTERM)
        launching.wait()
        assert not any(process.is_running() for process in family)
    records = StartHistory(tmp_path / "state" / "mileage" / "engine-starts.jsonl").records()
    assert [record.ready for record in records] == [True, True]
    assert {record.model for record in records} == {str(model)}
    assert json.loads(json.dumps(times))["ready_s"] == pytest.approx(records[0].times.ready_s)
