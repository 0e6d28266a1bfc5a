"""A real vLLM with the plugin: its limits change while it serves, and come back by themselves."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mileage.policy.engine_knobs import KNOBS
from tests.support.gateway import Gateway, wait_until
from tests.support.raw_http import RawClient, get, post
from tests.support.vllm_control import PATIENCE_S, Control, EngineLoad
from tests.support.vllm_server import CONTROL_TOKEN, PLUGIN, VllmServer, tiny_model

pytestmark = pytest.mark.heavy

SLOTS, STEP_TOKENS, LENGTH = 16, 2048, 4096
ARGUMENTS = (
    *("--load-format", "dummy", "--max-model-len", str(LENGTH), "--no-enable-prefix-caching"),
    *("--max-num-seqs", str(SLOTS), "--max-num-batched-tokens", str(STEP_TOKENS)),
)
PATH = "/mileage/control"
CALLS, CALLERS = 10_000, 8
BEARER = f"Authorization: Bearer {CONTROL_TOKEN}"
SOCKET = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
"""The handshake of a WebSocket."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[VllmServer]:
    """A server of a model with steps of milliseconds."""
    directory = tmp_path_factory.mktemp("vllm")
    model = tiny_model(vllm_python, directory)
    with VllmServer(
        vllm_python, model, directory, *ARGUMENTS, name="tiny", environment=PLUGIN
    ) as vllm:
        yield vllm


@pytest.fixture
def control(server: VllmServer) -> Iterator[Control]:
    """Its control, with everything as at the start."""
    found = Control(server)
    found.reset()
    yield found
    found.client.close()


def test_the_document(control: Control) -> None:
    found = control.get()
    assert found["engine"] == "vllm"
    assert found["engine_version"][0].isdigit()
    assert found["start"] == {
        "active_max": SLOTS,
        "step_tokens_max": STEP_TOKENS,
        "long_prefill_tokens_max": 0,
        "waiting_max": None,
    }
    assert found["bounds"]["active_max"] == [1, SLOTS]
    assert found["bounds"]["step_tokens_max"] == [1, STEP_TOKENS]
    assert found["bounds"]["long_prefill_tokens_max"] == [1, LENGTH]
    assert [found["capabilities"][name] for name in KNOBS] == [True] * 4
    assert [rank["rank"] for rank in found["ranks"]] == [0]
    assert found["boot"]
    assert found["version"] == found["applied_version"] > 0


def test_a_lower_cap_drains_without_an_error(server: VllmServer, control: Control) -> None:
    control.set(active_max=12)
    with EngineLoad(server, 16, prompt_tokens=8, output_tokens=100) as load:
        control.until("twelve run", lambda found: found["ranks"][0]["running"] == 12)
        found = control.set(active_max=2)
        assert found["applied"]["active_max"] == 2
        found = control.until("two run", lambda found: found["ranks"][0]["running"] == 2)
        assert found["ranks"][0]["waiting"] > 0
        for _ in range(50):
            assert control.get()["ranks"][0]["running"] <= 2
        control.reset()
    assert load.failures == []
    assert load.answered >= 16


def test_a_lower_budget_holds_from_the_next_step_on(server: VllmServer, control: Control) -> None:
    def largest() -> int | None:
        found: int | None = control.get()["ranks"][0]["prefill_tokens_step_max"]
        return found

    control.set(step_tokens_max=STEP_TOKENS - 1)
    with EngineLoad(server, 3, prompt_tokens=1500, output_tokens=4) as load:
        control.until("a large step", lambda _: (largest() or 0) >= 1500)
        control.set(step_tokens_max=96)
        before = control.get()["ranks"][0]["steps_total"]
        found = control.until(
            "sixty steps", lambda found: found["ranks"][0]["steps_total"] >= before + 60
        )
        rank = found["ranks"][0]
        # Full steps, and none above: those of two prompts at once included.
        assert (rank["prefill_tokens_step_max"], rank["step_tokens_seen_max"]) == (96, 96)
        control.reset()
    assert load.failures == []


def test_long_prompts_are_taken_in_chunks(server: VllmServer, control: Control) -> None:
    control.set(long_prefill_tokens_max=48)
    with EngineLoad(server, 3, prompt_tokens=1500, output_tokens=4) as load:
        before = control.until("a request is answered", lambda _: load.answered >= 3)
        answered = load.answered
        found = control.until("six more", lambda _: load.answered >= answered + 6)
        control.reset()
    steps = found["ranks"][0]["steps_total"] - before["ranks"][0]["steps_total"]
    # A prompt takes 32 steps, shared by three; without the limit a request takes five at most.
    assert steps / (load.answered - answered) > 6
    assert load.failures == []


def test_what_is_out_of_range_is_clamped_and_told(control: Control) -> None:
    found = control.set(active_max=10**9, step_tokens_max=-5, long_prefill_tokens_max=10**6)
    assert (found["applied"]["active_max"], found["applied"]["step_tokens_max"]) == (SLOTS, 1)
    clamped = found["clamped"]
    assert clamped["active_max"] == {
        "asked": 10**9,
        "applied": SLOTS,
        "reason": f"out of 1..{SLOTS}",
    }
    assert clamped["step_tokens_max"]["applied"] == 1
    assert clamped["long_prefill_tokens_max"]["applied"] == LENGTH


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param({"knobs": {"max_num_running_reqs": 1}}, "knobs.max_num_running_reqs", id="k"),
        pytest.param({"knobs": {"active_max": "two"}}, "knobs[...]", id="type"),
        pytest.param({"knobs": {"active_max": 10**30}}, "knobs.active_max", id="128 bits"),
        pytest.param({"policy": {"budget": 10**30}}, "policy.budget", id="a policy of 128 bits"),
        pytest.param({"lease_s": -1}, "lease_s", id="lease"),
        pytest.param(b"{]", "body", id="no JSON"),
    ],
)
def test_a_bad_request_is_a_400(control: Control, document: Any, field: str) -> None:
    before = control.get()["version"]
    answer = control.post(document)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert control.get()["version"] == before


def test_a_wrong_token_is_a_401(server: VllmServer, control: Control) -> None:
    before = control.get()["version"]
    for token in ("", "Bearer", "Bearer wrong-token-of-sixteen", f"Basic {CONTROL_TOKEN}"):
        answer = control.post({"knobs": {"active_max": 1}}, authorization=token)
        assert answer.status_code == 401
        assert httpx.get(server.url + PATH, headers={"authorization": token}).status_code == 401
    assert control.get()["version"] == before


def test_beyond_the_queue_limit_there_is_a_503(server: VllmServer, control: Control) -> None:
    control.set(active_max=1, waiting_max=0)
    url = f"{server.url}/v1/completions"
    asked = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 1}
    long = {**asked, "max_tokens": LENGTH - 8, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", url, json=long, timeout=PATIENCE_S) as first:
        assert first.status_code == 200
        answer = httpx.post(url, json=asked, timeout=PATIENCE_S)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1
        answer = httpx.get(f"{server.url}/v1/realtime", headers=SOCKET, timeout=PATIENCE_S)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        for path in ("/health", "/v1/models", "/metrics"):
            assert httpx.get(server.url + path, timeout=PATIENCE_S).status_code == 200
    # Its client left: the engine stops, and the place is free.
    control.until("it ended", lambda found: found["ranks"][0]["running"] == 0)
    deadline_s = time.monotonic() + PATIENCE_S
    while not (answer := httpx.post(url, json=asked, timeout=PATIENCE_S)).is_success:
        assert answer.status_code == 503
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def mileage(*arguments: str) -> list[str]:
    """A command line."""
    return [sys.executable, "-m", "mileage.cli.main", "engine", "control", *arguments]


def test_killing_the_governor_brings_the_start_values_back(
    server: VllmServer, control: Control
) -> None:
    command = mileage(server.url, "--active-max", "3", "--step-tokens-max", "96", "--hold")
    governor = subprocess.Popen(
        [*command, "--lease-s", "4"],
        env={**os.environ, "MILEAGE_CONTROL_TOKEN": CONTROL_TOKEN},
        stdout=subprocess.DEVNULL,
    )
    try:
        first = control.until("in force", lambda found: found["applied"]["active_max"] == 3)
        # It renews, so the values stay beyond the first lease.
        control.until("renewed", lambda found: found["version"] >= first["version"] + 4)
        assert not control.get()["reverted"]
    finally:
        governor.send_signal(signal.SIGKILL)
        governor.wait()
    with EngineLoad(server, 2, prompt_tokens=8, output_tokens=20) as load:
        found = control.until("back", lambda found: bool(found["reverted"]))
        found = control.until("back", lambda found: found["applied"] == found["start"])
    assert load.failures == []
    assert set(found["requested"].values()) == {None}


def governed(server: VllmServer, limit: int, lease_s: float, *, step_budget: bool = False) -> str:
    """A gateway's configuration that has the engine keep a limit of its own."""
    return f"""
[slo]
itl_s = 5.0
[governor]
policy = "static"
[governor.static]
limit = {limit}
[[engines]]
kind = "vllm"
name = "gpu"
url = "{server.url}"
[engines.control]
token_env = "TOKEN_OF_CONTROL"
lease_s = {lease_s}
step_budget = {str(step_budget).lower()}
"""


def test_a_gateway_governs_the_engine_and_killing_it_brings_the_start_values_back(
    server: VllmServer, control: Control, tmp_path: Path
) -> None:
    environment = {"TOKEN_OF_CONTROL": CONTROL_TOKEN}
    config = governed(server, 4, 6.0, step_budget=True)
    with Gateway(tmp_path, config=config, environment=environment) as gateway:
        first = control.until("in force", lambda found: found["applied"]["active_max"] == 4)
        asked = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 4}
        answer = httpx.post(f"{gateway.url}/completions", json=asked, timeout=PATIENCE_S)
        assert answer.status_code == 200
        # Requests from elsewhere are governed, too, and its own go on.
        with EngineLoad(server, 10, prompt_tokens=8, output_tokens=100) as load:
            control.until("many wait", lambda found: found["ranks"][0]["waiting"] > 2)
            found = control.until("renewed", lambda found: found["version"] >= first["version"] + 3)
        assert (found["ranks"][0]["running_seen_max"], found["reverted"]) == (4, False)
        assert (found["policy"]["budget"], found["policy"]["itl_target_s"]) == ("model", 5.0)
        assert load.failures == []
        row = wait_until(
            lambda: (row := gateway.replica("gpu"))["control"]["state"] == "held" and row,
            "it is told",
            PATIENCE_S,
        )
        assert (row["control"]["applied"], row["control"]["asked"], row["limit"]) == (4, 4, 4)
        assert row["running_max"] == SLOTS
        (tmp_path / "mileage.toml").write_text(governed(server, 3, 6.0, step_budget=True))
        gateway.admin("/api/v1/config/reload", "POST")
        control.until("the new limit", lambda found: found["applied"]["active_max"] == 3)
        gateway.kill_all()
    with EngineLoad(server, 2, prompt_tokens=8, output_tokens=20) as load:
        control.until("back", lambda found: bool(found["reverted"]))
        found = control.until("back", lambda found: found["applied"] == found["start"])
    assert (load.failures, found["policy"]) == ([], None)


def test_a_gateway_that_stops_gives_the_start_values_back_at_once(
    server: VllmServer, control: Control, tmp_path: Path
) -> None:
    environment = {"TOKEN_OF_CONTROL": CONTROL_TOKEN}
    config = governed(server, 4, 600.0)
    with Gateway(tmp_path, config=config, environment=environment):
        control.until("in force", lambda found: found["applied"]["active_max"] == 4)
    found = control.get()
    assert (found["applied"], found["lease_s"]) == (found["start"], 0.1)


def test_the_command_shows_and_sets(server: VllmServer, control: Control) -> None:
    def run(*arguments: str, token: str = CONTROL_TOKEN) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            mileage(server.url, *arguments),
            env={**os.environ, "MILEAGE_CONTROL_TOKEN": token},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    ended = run("--active-max", "5", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["applied"]["active_max"] == 5
    ended = run()
    assert ended.returncode == 0, ended.stderr
    assert "none: the values stay" in ended.stdout
    ended = run("--active-max", "start", "--policy", "off", "--json")
    assert json.loads(ended.stdout)["applied"]["active_max"] == SLOTS
    assert run("--active-max", "few").returncode == 2
    ended = run("--policy", '{"budget": "no such"}')
    assert (ended.returncode, "policy.budget" in ended.stderr) == (2, True)
    ended = run(token="another-token-of-sixteen")
    assert (ended.returncode, "401" in ended.stderr) == (1, True)


def some_call(rng: random.Random) -> tuple[str, bytes]:
    """A random call, and what kind it is. None makes the queue so short that it would refuse."""
    kind = rng.choice(("get", "valid", "valid", "range", "malformed", "unknown", "token"))
    knobs = {
        "active_max": rng.choice((None, rng.randint(1, SLOTS))),
        "step_tokens_max": rng.choice((None, rng.randint(64, STEP_TOKENS))),
        "long_prefill_tokens_max": rng.choice((None, 0, rng.randint(1, LENGTH))),
        "waiting_max": rng.choice((None, rng.randint(100, 1000))),
    }
    named = dict(rng.sample(sorted(knobs.items()), rng.randint(0, 4)))
    lease_s = rng.choice((None, 0.01, 1, 10))
    if kind == "get":
        return kind, get(PATH, BEARER)
    if kind == "range":
        name = rng.choice(("active_max", "step_tokens_max", "long_prefill_tokens_max"))
        named[name] = rng.choice((-(10**12), -1, 0, 10**6, 2**62))
    elif kind == "unknown":
        named[rng.choice(("max_num_seqs", "", "active", "ACTIVE_MAX"))] = 1
    elif kind == "token":
        return kind, post(PATH, {"knobs": named}, "Authorization: Bearer wrong-token-of-16")
    elif kind == "malformed":
        bodies = (b"{", b"[]", b"\xff\xfe", b'{"knobs": 3}', b'{"knobs": {"active_max": "x"}}')
        return kind, post(PATH, rng.choice((*bodies, b'{"lease_s": 0}', b"[" * 5000)), BEARER)
    return kind, post(PATH, {"knobs": named, "lease_s": lease_s}, BEARER)


EXPECTED = {"get": 200, "valid": 200, "range": 200, "malformed": 400, "unknown": 400, "token": 401}


def test_ten_thousand_random_calls_under_load_fail_no_request(
    server: VllmServer, control: Control
) -> None:
    port = int(server.url.rpartition(":")[2])
    wrong: list[str] = []
    kinds: Counter[str] = Counter()

    def call(seed: int) -> None:
        rng = random.Random(seed)
        with RawClient(port, timeout_s=120.0) as client:
            for _ in range(CALLS // CALLERS):
                kind, request = some_call(rng)
                answer = client.ask(request)
                kinds[kind] += 1
                if answer.status != EXPECTED[kind]:
                    wrong.append(f"{kind}: {answer.status} {answer.body[:200]!r} {request!r}")

    with EngineLoad(server, 6, prompt_tokens=40, output_tokens=12) as load:
        callers = [threading.Thread(target=call, args=(seed,)) for seed in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        control.reset()
    assert wrong == []
    assert load.failures == []
    assert sum(kinds.values()) == CALLS
    assert load.answered > 6
    found = control.get()
    assert found["applied"] == found["start"]
