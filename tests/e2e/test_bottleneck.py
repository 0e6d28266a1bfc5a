"""`mileage cost bottleneck` beside a real gateway and its embedded engine, without a GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Gateway, run_mileage
from tests.support.raw_http import RawClient, post

START_S = 300.0
CODES = {"none": 0, "bound": 1, "not_enough_evidence": 3}
HI: list[Any] = [{"role": "user", "content": "Say hi."}]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    arguments = ("--threads", "1", "--slots", "2", "--context-tokens", "2048")
    directory = tmp_path_factory.mktemp("bottleneck")
    with Gateway(directory, *arguments, start_s=START_S) as gateway:
        yield gateway


def looked(gateway: Gateway, *arguments: str) -> dict[str, Any]:
    told = run_mileage(
        "cost", "bottleneck", gateway.root, "--metrics", f"{gateway.listening.admin_url}/metrics",
        "--for", "5s", "--json", *arguments, state=gateway.state,
    )  # fmt: skip
    document: dict[str, Any] = json.loads(told.stdout)
    assert told.returncode == CODES[document["outcome"]], told.stderr
    return document


def test_an_engine_at_work_is_seen_with_its_load(gateway: Gateway, tmp_path: Path) -> None:
    body = {"model": "smollm2", "messages": HI, "max_tokens": 1900, "stream": True}
    saved = tmp_path / "looks.jsonl"
    with RawClient(gateway.port) as client:
        client.send(post("/v1/chat/completions", {**body, "ignore_eos": True}))
        client.read_head()
        document = looked(gateway, "--save", str(saved))
    (gpu,) = document["gpus"]
    assert gpu["basis"] == "cpu"
    assert 0.0 < gpu["busy_mean_ratio"] <= 1.0
    assert gpu["figures"]["memory_used_bytes"]["mean"] > 50e6
    verdicts = {verdict["dimension"]: verdict for verdict in gpu["verdicts"]}
    assert verdicts["interconnect"]["held"] is False
    requests = [e for e in verdicts["host"]["evidence"] if e["figure"] == "requests"]
    assert 0.5 <= requests[0]["mean"] <= 1.0  # the first look may come before it is in a slot
    assert set(document["samplers"]) == {"host", "load"}
    first = json.loads(saved.read_text().partition("\n")[0])
    looked_at_s = first["zero_at_utc_ns"] / 1e9 + document["window"]["end_s"]
    assert 0.0 < time.time() - looked_at_s < 60.0
    again = run_mileage("cost", "bottleneck", "--file", str(saved), "--json", state=gateway.state)
    assert json.loads(again.stdout)["gpus"] == document["gpus"]


def test_an_idle_engine_holds_nothing_up(gateway: Gateway) -> None:
    document = looked(gateway)
    (gpu,) = document["gpus"]
    assert document["outcome"] == "none"
    assert gpu["bound"] == []
