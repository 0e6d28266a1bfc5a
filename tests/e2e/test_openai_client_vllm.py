"""The official OpenAI client, unchanged, against a real vLLM behind the gateway."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support.gateway import Gateway, wait_until
from tests.support.openai_suite import COUNT, HI, LONG_TOKENS, NO_END, OpenAiSuite
from tests.support.raw_http import RawClient, events_of, post
from tests.support.served import Served
from tests.support.vllm_server import VllmServer, converted_model

pytestmark = pytest.mark.heavy

CONTEXT_TOKENS = 2048
RUNNING_MAX = 4
TIMEOUT_S = 120.0
GIVEN_UP_S = 15.0
ARGUMENTS = (
    *("--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", str(RUNNING_MAX)),
    *("--enable-prompt-tokens-details", "--enable-auto-tool-choice"),
    *("--tool-call-parser", "hermes"),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, vllm_python: Path) -> Iterator[Served]:
    model = converted_model(vllm_python)
    directory = tmp_path_factory.mktemp("vllm")
    with (
        VllmServer(vllm_python, model, directory, *ARGUMENTS) as vllm,
        Gateway(directory / "gateway", engines=[f"vllm={vllm.url}"]) as gateway,
    ):
        yield Served(
            gateway,
            vllm.name,
            context_tokens=CONTEXT_TOKENS,
            timeout_s=TIMEOUT_S,
            engine_log=lambda: vllm.log,
        )


class TestVllm(OpenAiSuite):
    """All of it, and what only vLLM has."""

    def check_tools(self, name: str, arguments: str, text: str) -> None:
        assert name == "get_weather"

    def test_embeddings(self, served: Served, client: openai.OpenAI) -> None:
        """A model that generates has none in vLLM: the client is told so."""
        with pytest.raises(openai.APIStatusError, match="no /v1/embeddings") as caught:
            client.embeddings.create(model=served.model, input="hello")
        assert caught.value.status_code == 501
        row = served.row(caught.value.response.headers["x-request-id"])
        assert (row["outcome"], row["status"]) == ("rejected", 501)

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_responses(self, served: Served, client: openai.OpenAI, stream: bool) -> None:
        raw: Any = client.responses.with_raw_response.create(
            model=served.model, input="Say hi.", max_output_tokens=8, stream=stream
        )
        answer = raw.parse()
        if stream:
            events = list(answer)
            text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
            answer = events[-1].response
            assert text == answer.output_text
        assert answer.output_text
        row = served.row(raw.headers["x-request-id"])
        assert (row["endpoint"], row["outcome"], row["stream"]) == ("responses", "ok", stream)
        assert row["prompt_tokens"] == answer.usage.input_tokens > 0
        assert row["output_tokens"] == answer.usage.output_tokens > 0
        assert (row["first_token_s"] is not None) == stream

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_messages(self, served: Served, stream: bool) -> None:
        body = {"model": served.model, "messages": HI, "max_tokens": 8, "stream": stream}
        url = f"{served.gateway.url}/messages"
        answer = httpx.post(
            url, json=body, headers={"anthropic-version": "2023-06-01"}, timeout=TIMEOUT_S
        )
        served.answered.add(request_number(answer))
        if stream:
            events = events_of(answer.content)
            kinds = [event["type"] for event in events]
            assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
            text = "".join(e["delta"].get("text", "") for e in events if "block_d" in e["type"])
            usage = next(e["usage"] for e in events if e["type"] == "message_delta")
        else:
            text = answer.json()["content"][0]["text"]
            usage = answer.json()["usage"]
        assert text
        row = served.row(answer.headers["x-request-id"])
        assert (row["endpoint"], row["outcome"], row["stream"]) == ("messages", "ok", stream)
        assert row["prompt_tokens"] == usage["input_tokens"] > 0
        assert row["output_tokens"] == usage["output_tokens"] > 0

    def test_cached_tokens_are_recorded(self, served: Served, client: openai.OpenAI) -> None:
        words = " ".join(f"word{number}" for number in range(150))
        messages: list[Any] = [{"role": "user", "content": words}]
        for cached in (False, True):
            answer = client.chat.completions.create(
                model=served.model, messages=messages, max_tokens=2
            )
            row = served.row(answer._request_id)
            assert answer.usage is not None
            assert row["prompt_tokens"] == answer.usage.prompt_tokens > 300
            assert (row["cached_tokens"] > 0) is cached

    def test_replica_shows_what_vllm_says_of_itself(self, served: Served) -> None:
        """Full, and something waits in it; what else waits may do so in the gateway."""
        waiting = 2
        body = {"model": served.model, "messages": COUNT, "stream": True}
        body |= {"max_tokens": LONG_TOKENS, **NO_END}
        with contextlib.ExitStack() as clients:
            for _ in range(RUNNING_MAX + waiting):
                raw = clients.enter_context(RawClient(served.gateway.port))
                raw.send(post("/v1/chat/completions", body))
                served.unanswered += 1

            def full() -> bool:
                replica = served.gateway.replica()
                return bool(
                    replica["running"] == RUNNING_MAX
                    and 1 <= replica["waiting"] <= waiting
                    and replica["in_flight"] == RUNNING_MAX + replica["waiting"]
                    and 0 < replica["kv_cache_usage_ratio"] <= 1
                )

            wait_until(full, "vLLM's figures are shown", TIMEOUT_S)
            replica = served.gateway.replica()
            assert (replica["state"], replica["kind"]) == ("up", "vllm")
            assert replica["version"].startswith("0.")
            assert replica["observation_age_s"] < 10
            assert replica["observation_error"] is None
        served.wait_running(0, GIVEN_UP_S)
        outcomes = [row["outcome"] for row in served.rows()[: RUNNING_MAX + waiting]]
        assert outcomes == ["cancelled"] * (RUNNING_MAX + waiting)

    def test_ledger_has_every_request_once(self, served: Served) -> None:
        served.check_ledger()


def request_number(response: httpx.Response) -> int:
    """The id in the ledger of a request, from its answer."""
    return int(response.headers["x-request-id"].removeprefix("req-"), 16)
