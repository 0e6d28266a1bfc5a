"""A real vLLM (its CPU build), watched while it generates: its pages, its log, its command line.

And two faults of its users, each named first by the command: more clients than it has slots, and a
time at the head of every prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.launch_arguments import launch_facts
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.doctor.collect.startup_log import log_facts
from mileage.measure.exposition import parse
from mileage.scrape.doctor_engine import watch_engine
from tests.support.doctor_load import loading
from tests.support.engine_pages import checked
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.vllm_server import VllmServer, converted_model

pytestmark = pytest.mark.heavy

SLOTS = 2
ARGUMENTS = ("--max-model-len", "2048", "--max-num-seqs", str(SLOTS))
WINDOW_S = 8.0
CLIENTS = 2
WATCHED = "25s"
"""Of the 60 s that a finding may take; the rest is for slow machines."""
LOADED_S = 240.0
TRIES = 3
OTHERS_CORES = 0.25
"""Where other programs take as much of the CPU, the doctor names them first, and rightly."""


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[VllmServer]:
    """The server."""
    directory = tmp_path_factory.mktemp("vllm")
    with VllmServer(vllm_python, converted_model(vllm_python), directory, *ARGUMENTS) as server:
        yield server


def keep_asking(url: str, name: str, ended: threading.Event) -> None:
    """Short requests one after another, with the same head."""
    request = {"model": name, "prompt": "one two three four " * 100, "max_tokens": 16}
    while not ended.is_set():
        httpx.post(f"{url}/v1/completions", json=request, timeout=120.0)


@pytest.fixture(scope="module")
def document(vllm: VllmServer) -> dict[str, Any]:
    """What its pages tell after some seconds of work."""
    ended = threading.Event()
    clients = [
        threading.Thread(target=keep_asking, args=(vllm.url, vllm.name, ended))
        for _ in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    try:
        record = asyncio.run(watch_engine(vllm.url, window_s=WINDOW_S))
    finally:
        ended.set()
        for client in clients:
            client.join()
    return checked(merge_facts(engine_facts(record)).document)


def test_its_pages(document: dict[str, Any]) -> None:
    assert document["engine"]["name"] == "vllm"
    assert document["engine"]["variant"] == "v1"
    assert document["engine"]["version"][0].isdigit()
    assert document["model"] == {"name": "smollm2"}
    assert document["settings"]["max_model_len"] == 2048
    assert document["settings"]["enable_prefix_caching"] is True
    signals = document["signals"]
    assert 0 < signals["requests_running"] <= CLIENTS
    assert signals["output_tokens_per_s"] > 0
    assert signals["requests_per_s"] > 0
    assert signals["kv_cache_capacity_tokens"] > 2048
    assert signals["kv_max_concurrency"] > 1
    assert signals["prefix_cache_hit_ratio"] > 0.3
    assert signals["ttft_mean_s"] > 0
    low, high = signals["ttft_p50_s"]["min"], signals["ttft_p50_s"]["max"]
    assert low < high
    assert signals["preemptions_count"] == 0
    assert signals["http_5xx_count"] == 0
    assert signals["process_restarts_count"] == 0
    assert 12 < document["workload"]["osl_tokens"] <= 16  # the last one may be cut off
    assert document["workload"]["max_tokens"] == 16


def test_its_log(vllm: VllmServer, document: dict[str, Any]) -> None:
    told = checked(log_facts(vllm.log.splitlines()))
    assert told["settings"]["enforce_eager"] is True
    assert told["settings"]["max_model_len"] == 2048
    assert told["signals"]["startup_engine_init_s"] > 0
    capacity = document["signals"]["kv_cache_capacity_tokens"]
    assert told["signals"]["kv_cache_capacity_tokens"] == pytest.approx(capacity, rel=0.01)


def test_its_command_line(vllm: VllmServer) -> None:
    port = vllm.url.rpartition(":")[2]
    lines = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that has just ended
            lines.append(process.cmdline())
    (line,) = (words for words in lines if port in words)
    facts = launch_facts(line)
    assert facts.engine == "vllm"
    assert facts.configured["settings"] == {
        "max_model_len": 2048,
        "max_num_seqs": SLOTS,
        "enforce_eager": True,
    }
    assert facts.configured["model"]["name"] == "smollm2"


def total(url: str, name: str) -> float:
    """A figure of its page, over all labels."""
    page = parse(httpx.get(f"{url}/metrics", timeout=60.0).content, {name})
    return sum(sample.value or 0.0 for sample in page.samples)


def diagnosed(url: str, state: Path) -> dict[str, Any]:
    """What the command says of what runs there, given no more than its address."""
    done = run_mileage("doctor", url, "--for", WATCHED, "--json", state=state, timeout_s=300.0)
    assert done.returncode in (0, 1, 3), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def causes(answer: dict[str, Any]) -> list[str]:
    return [found["cause"] for found in answer["findings"]]


def is_disturbed(answer: dict[str, Any]) -> bool:
    others = answer["facts"].get("signals", {}).get("other_process_cpu_cores", 0.0)
    return isinstance(others, float) and others >= OTHERS_CORES


@pytest.mark.quiet
def test_more_clients_than_slots(vllm: VllmServer, tmp_path: Path) -> None:
    with loading(f"{vllm.url}/v1", "plain", "--clients", 12):
        wait_until(
            lambda: total(vllm.url, "vllm:num_requests_waiting") >= SLOTS, "a queue", LOADED_S
        )
        for _ in range(TRIES):
            answer = diagnosed(vllm.url, tmp_path)
            if not is_disturbed(answer):
                break
    if is_disturbed(answer):
        pytest.skip("other programs take the CPU: the doctor names them, not the slots")
    assert causes(answer)[:1] == ["max_num_seqs_cap"], answer


@pytest.mark.quiet
def test_a_time_at_the_head_of_the_prompt(vllm: VllmServer, tmp_path: Path) -> None:
    with (
        Gateway(tmp_path, engines=[f"vllm={vllm.url}"], start_s=LOADED_S) as gateway,
        loading(gateway.url, "dated", "--clients", CLIENTS),
    ):
        before = total(vllm.url, "vllm:request_success_total")
        wait_until(
            lambda: total(vllm.url, "vllm:request_success_total") >= before + 4, "answers", LOADED_S
        )
        answer = diagnosed(gateway.root, gateway.state)
    assert causes(answer)[:1] == ["volatile_prefix"], answer
