"""A real vLLM (its CPU build), watched while it generates: its pages, its log, its command line."""

from __future__ import annotations

import asyncio
import contextlib
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
from mileage.scrape.doctor_engine import watch_engine
from tests.support.engine_pages import checked
from tests.support.vllm_server import VllmServer, converted_model

pytestmark = pytest.mark.heavy

ARGUMENTS = ("--max-model-len", "2048", "--max-num-seqs", "4")
WINDOW_S = 8.0
CLIENTS = 2


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
        "max_num_seqs": 4,
        "enforce_eager": True,
    }
    assert facts.configured["model"]["name"] == "smollm2"
