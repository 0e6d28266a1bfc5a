"""A real vLLM of two data-parallel ranks behind two API servers: what one is asked holds on all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.vllm_control import PATIENCE_S, Control, EngineLoad
from tests.support.vllm_server import PLUGIN, VllmServer, tiny_model

pytestmark = pytest.mark.heavy

SLOTS, STEP_TOKENS, LENGTH = 16, 2048, 4096
ARGUMENTS = (
    *("--load-format", "dummy", "--max-model-len", str(LENGTH), "--no-enable-prefix-caching"),
    *("--max-num-seqs", str(SLOTS), "--max-num-batched-tokens", str(STEP_TOKENS)),
    *("--data-parallel-size", "2", "--api-server-count", "2"),
)
CONNECTIONS = 6
REFUSED = 30
"""Connections in a row that are refused, or let in: some are of each server."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[VllmServer]:
    directory = tmp_path_factory.mktemp("vllm-ranks")
    model = tiny_model(vllm_python, directory)
    with VllmServer(
        vllm_python, model, directory, *ARGUMENTS, name="tiny", environment=PLUGIN
    ) as vllm:
        yield vllm


@pytest.fixture
def control(server: VllmServer) -> Iterator[Control]:
    found = Control(server)
    found.reset()
    yield found
    found.client.close()


def each(document: dict[str, Any], field: str) -> list[Any]:
    """A field of all ranks."""
    return [rank[field] for rank in document["ranks"]]


def test_the_document_has_both_ranks(control: Control) -> None:
    found = control.get()
    assert each(found, "rank") == [0, 1]
    first, second = each(found, "boot")
    assert first != second
    # Steps of two ranks overlap: they are not metered, and the document says why.
    assert isinstance(found["capabilities"]["metering"], str)


def test_a_cap_is_in_force_on_every_rank(server: VllmServer, control: Control) -> None:
    with EngineLoad(server, 16, prompt_tokens=8, output_tokens=100) as load:
        control.until("both have more than two", lambda found: min(each(found, "running")) > 2)
        found = control.set(active_max=2)
        assert each(found, "applied_version") == [found["version"]] * 2
        assert [applied["active_max"] for applied in each(found, "applied")] == [2, 2]
        control.until("two run on each", lambda found: each(found, "running") == [2, 2])
        for _ in range(50):
            assert max(each(control.get(), "running")) <= 2
        control.reset()
    assert load.failures == []


def test_a_budget_holds_on_every_rank(server: VllmServer, control: Control) -> None:
    with EngineLoad(server, 6, prompt_tokens=1500, output_tokens=4) as load:
        control.set(step_tokens_max=96)
        before = each(control.get(), "steps_total")

        def enough(found: dict[str, Any]) -> bool:
            steps = each(found, "steps_total")
            return all(now >= then + 60 for now, then in zip(steps, before, strict=True))

        found = control.until("sixty steps of each", enough)
        assert each(found, "prefill_tokens_step_max") == [96, 96]
        assert each(found, "step_tokens_seen_max") == [96, 96]
        control.reset()
    assert load.failures == []


def test_every_api_server_says_what_one_was_asked(server: VllmServer, control: Control) -> None:
    # Each new connection is taken by one of the servers: some by the one that was not asked.
    others = [Control(server) for _ in range(CONNECTIONS)]
    asked = control.set(active_max=5)
    for other in others:
        found = other.until("in force", lambda found: found["applied"]["active_max"] == 5)
        assert found["version"] == asked["version"]
        other.client.close()


def test_every_api_server_keeps_the_queue_limit(server: VllmServer, control: Control) -> None:
    url = f"{server.url}/v1/completions"
    long = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": LENGTH - 8, "ignore_eos": True}
    control.set(active_max=1, waiting_max=0)
    deadline_s = time.monotonic() + PATIENCE_S
    in_a_row = let_in = 0
    with contextlib.ExitStack() as stack:
        # Each on a connection of its own, and so at any of the servers. The one that was not asked
        # lets all in until it has heard of it, and has one too many then.
        while in_a_row < REFUSED:
            assert time.monotonic() < deadline_s, f"{let_in} are let in, and more"
            client = stack.enter_context(httpx.Client(timeout=PATIENCE_S))
            asked = client.build_request("POST", url, json={**long, "stream": True})
            answer = client.send(asked, stream=True)
            stack.callback(answer.close)
            let_in += answer.status_code == 200
            in_a_row = in_a_row + 1 if answer.status_code == 503 else 0
            time.sleep(0.05)
    assert let_in >= 2
    control.until("they ended", lambda found: each(found, "running") == [0, 0])
    control.reset()
    in_a_row = 0
    while in_a_row < REFUSED:
        assert time.monotonic() < deadline_s + PATIENCE_S
        answer = httpx.post(url, json={**long, "max_tokens": 1}, timeout=PATIENCE_S)
        in_a_row = in_a_row + 1 if answer.status_code == 200 else 0


def test_a_lease_ends_on_every_rank(control: Control) -> None:
    control.set(active_max=3, lease_s=2)
    found = control.until("reverted", lambda found: all(each(found, "reverted")))
    assert [applied["active_max"] for applied in each(found, "applied")] == [SLOTS, SLOTS]
