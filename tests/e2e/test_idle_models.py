"""Models that sleep behind a real gateway: unloaded, woken by requests, killed while they load."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.resolve import resolve_model
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.raw_http import post

HI: list[Any] = [{"role": "user", "content": "Say hi."}]
START_S = 300.0
BURST, MANY = 6, 300
CONFIG = """
[server]
drain_timeout_s = 300.0
[governor]
queue_wait_max_s = 600.0
[idle]
policy = "never"
resident_min_s = 0.0
retry_s = 600.0
retry_max_s = 600.0
[[models]]
served_name = "often"
slots = 2
context_tokens = 512
threads = 1
load = "start"
[[models]]
served_name = "rarely"
slots = 2
context_tokens = 512
threads = 1
"""


def no_progress(label: str, done_bytes: int, total_bytes: int | None) -> None: ...


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(BURST) as made:
        yield made


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path, config=CONFIG, start_s=START_S) as made:
        yield made


def say(gateway: Gateway, model: str) -> str:
    with gateway.client(timeout=START_S) as client:
        answer = client.chat.completions.create(model=model, messages=HI, max_tokens=3)
    return answer.choices[0].message.content or ""


def model(gateway: Gateway, name: str) -> dict[str, Any]:
    found = {each["replica"]: each for each in gateway.admin("/api/v1/models")["models"]}
    told: dict[str, Any] = found[name]
    return told


def becomes(gateway: Gateway, name: str, state: str) -> None:
    wait_until(lambda: model(gateway, name)["state"] == state, f"{name} is {state}", START_S)


def loading_child(gateway: Gateway, others: set[int]) -> psutil.Process:
    """The child of a model that is being loaded, stopped in the middle of it."""

    def begun() -> psutil.Process | None:
        return next((child for child in gateway.embedded() if child.pid not in others), None)

    child: psutil.Process = wait_until(begun, "a child was started", START_S)
    child.suspend()
    return child


def waiting(gateway: Gateway, count: int) -> None:
    wait_until(lambda: model(gateway, "rarely")["waiting"] == count, f"{count} wait", START_S)


def left_waiting(gateway: Gateway, name: str) -> socket.socket:
    """A connection on which the model was asked, and nobody reads the answer."""
    made = socket.create_connection(("127.0.0.1", gateway.port), timeout=START_S)
    made.sendall(post("/v1/chat/completions", {"model": name, "messages": HI}))
    return made


def rests(gateway: Gateway, name: str) -> None:
    """Wait until the supervisor knows, by its workers' reports, that all was answered."""
    wait_until(lambda: model(gateway, name)["idle_s"] is not None, f"{name} rests", START_S)


def resident_bytes(gateway: Gateway) -> int:
    return sum(child.memory_info().rss for child in gateway.embedded())


def test_an_idle_model_is_unloaded_and_a_burst_wakes_it_once(
    gateway: Gateway, pool: ThreadPoolExecutor
) -> None:
    with gateway.client() as client:
        assert {each.id for each in client.models.list()} == {"often", "rarely"}
    assert say(gateway, "often")
    assert say(gateway, "rarely")
    both_bytes, rarely = resident_bytes(gateway), model(gateway, "rarely")
    assert (len(gateway.embedded()), rarely["loads_total"]) == (2, 1)

    settings = '[idle.models.rarely]\npolicy = "fixed"\nfixed_s = 1.0\n'
    gateway.reload(CONFIG + settings)
    becomes(gateway, "rarely", "asleep")
    gateway.reload(CONFIG)  # the burst may take longer than it would stay loaded
    assert len(gateway.embedded()) == 1
    assert both_bytes - resident_bytes(gateway) > rarely["memory_bytes"] / 2
    assert gateway.replica("rarely")["state"] == "asleep"
    assert say(gateway, "often")

    answers = [pool.submit(say, gateway, "rarely") for _ in range(BURST)]
    assert all(answer.result(START_S) for answer in answers)
    assert model(gateway, "rarely")["loads_total"] == 2
    assert len(gateway.requests(3 + BURST)) == 3 + BURST
    admin = ("--admin", str(gateway.listening.admin_url))
    told = run_mileage("engine", "models", *admin, "--json", state=gateway.state)
    assert (told.returncode, '"rarely"' in told.stdout) == (0, True)


def test_a_child_that_is_killed_while_it_loads_costs_no_request(
    gateway: Gateway, pool: ThreadPoolExecutor
) -> None:
    becomes(gateway, "often", "loaded")
    others = {child.pid for child in gateway.embedded()}
    answers = [pool.submit(say, gateway, "rarely") for _ in range(2)]
    child = loading_child(gateway, others)
    with contextlib.ExitStack() as leaving:
        for _ in range(MANY):
            leaving.enter_context(left_waiting(gateway, "rarely"))
        waiting(gateway, 2 + MANY)
    waiting(gateway, 2)  # all others have left
    child.kill()
    assert say(gateway, "often")
    assert all(answer.result(START_S) for answer in answers)
    assert model(gateway, "rarely")["loads_total"] == 1

    rests(gateway, "rarely")
    admin = ("--admin", str(gateway.listening.admin_url))
    asked = run_mileage("engine", "sleep", "rarely", *admin, state=gateway.state)
    assert asked.returncode == 0, asked.stderr
    becomes(gateway, "rarely", "asleep")
    unknown = run_mileage("engine", "wake", "nonsense", *admin, state=gateway.state)
    assert unknown.returncode == 2
    (left,) = gateway.embedded()
    left.kill()  # of the other model, which nobody uses now
    becomes(gateway, "often", "asleep")
    assert say(gateway, "often")


def test_a_model_that_cannot_be_loaded_is_told_so_and_others_go_on(tmp_path: Path) -> None:
    file = tmp_path / "gone.gguf"
    os.symlink(resolve_model(EmbeddedConfig(), progress=no_progress), file)
    config = f'{CONFIG}[[models]]\nserved_name = "gone"\nmodel = "{file}"\nslots = 1\n'
    with Gateway(tmp_path, config=config, start_s=START_S) as gateway:
        file.unlink()
        for _ in range(2):  # the second one is answered at once
            with pytest.raises(openai.InternalServerError) as caught:
                say(gateway, "gone")
            assert caught.value.status_code == 503
            assert caught.value.code == "load_failed"
            assert "retry-after" in caught.value.response.headers
        assert say(gateway, "often")
        assert model(gateway, "gone")["load_failures_total"] == 1


def test_what_waits_for_a_model_is_answered_before_the_gateway_ends(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    config = CONFIG.replace('load = "start"', 'load = "demand"')
    with Gateway(tmp_path, config=config, start_s=START_S) as gateway:
        answer: Future[str] = pool.submit(say, gateway, "rarely")
        child = loading_child(gateway, set())
        gateway.signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in gateway.log, "it stops", START_S)
        child.resume()
        assert answer.result(START_S)
        assert gateway.wait(START_S) == 0
        assert not child.is_running()
