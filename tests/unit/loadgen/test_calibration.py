"""Calibration: how long prompts become, by the server's tokenizer or by its usage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import pytest

from mileage.core.request import Endpoint
from mileage.loadgen.calibration import calibrate, find_server_kind
from mileage.loadgen.server_kind import ServerKind
from mileage.loadgen.token_lengths import TokenLengths
from mileage.wire.fetch import FetchError, FetchResponse

Reply = Callable[[str, dict[str, Any]], tuple[int, Any]]
URL = "http://engine:8000"


class Server:
    """Answers by a function of path and body; remembers what it was asked."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[dict[str, Any]] = []

    async def __call__(
        self,
        url: str,
        *,
        method: Literal["GET", "POST"],
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        timeout_s: float,
    ) -> FetchResponse:
        assert timeout_s > 0
        path = url.removeprefix(URL)
        self.paths.append(path)
        self.headers.append(dict(headers))
        asked = msgspec.json.decode(body) if method == "POST" else {}
        self.bodies.append(asked)
        status, answer = self._reply(path, asked)
        raw = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        return FetchResponse(status, (), raw)

    def lengths(
        self, endpoint: Endpoint = "chat", server: ServerKind = "openai", **more: Any
    ) -> TokenLengths:
        return asyncio.run(
            calibrate(URL, model="m", endpoint=endpoint, server=server, ask=self, **more)
        )


def words(body: dict[str, Any]) -> int:
    text = body.get("prompt") or body.get("input") or body.get("content")
    if text is None:
        text = body["messages"][0]["content"]
    return len(text.split())


def usage(tokens: Callable[[int], int], field: str = "prompt_tokens") -> Reply:
    return lambda path, body: (200, {"usage": {field: tokens(words(body))}})


@pytest.mark.parametrize(
    ("endpoint", "path", "field"),
    [
        ("chat", "/v1/chat/completions", "prompt_tokens"),
        ("completions", "/v1/completions", "prompt_tokens"),
        ("embeddings", "/v1/embeddings", "prompt_tokens"),
        ("responses", "/v1/responses", "input_tokens"),
        ("messages", "/v1/messages", "input_tokens"),
    ],
)
def test_usage_of_short_requests_tells(endpoint: Endpoint, path: str, field: str) -> None:
    server = Server(usage(lambda n: 30 + n, field))
    lengths = server.lengths(endpoint)
    assert (lengths.tokens_per_word, lengths.overhead_tokens) == (1.0, 30.0)
    assert (lengths.source, lengths.residual_tokens, lengths.reason) == ("probe", 0.0, None)
    assert set(server.paths) == {path}
    limits = {body.get("max_tokens", body.get("max_output_tokens", 1)) for body in server.bodies}
    assert limits == {1}


def test_tokens_of_messages_that_were_cached_count_too() -> None:
    def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return 200, {"usage": {"input_tokens": 1, "cache_read_input_tokens": 9 + words(body)}}

    assert Server(reply).lengths("messages").overhead_tokens == 10.0


def test_a_line_is_laid_through_counts_that_lie_beside_it() -> None:
    lengths = Server(usage(lambda n: round(11 + 1.37 * n))).lengths()
    assert lengths.tokens_per_word == pytest.approx(1.37, abs=0.01)
    assert lengths.overhead_tokens == pytest.approx(11, abs=0.7)
    assert lengths.residual_tokens is not None
    assert 0 < lengths.residual_tokens < 1


def test_vllm_is_asked_for_the_length_of_the_whole_template() -> None:
    server = Server(lambda path, body: (200, {"count": 24 + words(body), "tokens": []}))
    lengths = server.lengths("chat", "vllm")
    assert (lengths.source, lengths.overhead_tokens) == ("tokenize", 24.0)
    assert set(server.paths) == {"/tokenize"}
    assert all(body["add_generation_prompt"] for body in server.bodies)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_llamacpp_lays_the_template_round_a_chat(endpoint: Endpoint) -> None:
    def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/apply-template":
            return 200, {"prompt": f"system be kind user {body['messages'][0]['content']} end"}
        assert body["add_special"]
        return 200, {"tokens": list(range(words(body)))}

    lengths = Server(reply).lengths(endpoint, "llamacpp")
    assert lengths.source == "tokenize"
    assert lengths.overhead_tokens == (5.0 if endpoint == "chat" else 0.0)


def test_sglangs_tokenizer_knows_no_template() -> None:
    server = Server(usage(lambda n: n + 12))
    assert server.lengths("chat", "sglang").source == "probe"
    assert set(server.paths) == {"/v1/chat/completions"}


def test_a_server_without_a_tokenizer_is_probed_and_the_reason_is_told() -> None:
    def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/tokenize":
            return 404, {"detail": "Not Found"}
        return usage(lambda n: n + 3)(path, body)

    lengths = Server(reply).lengths("chat", "vllm")
    assert (lengths.source, lengths.overhead_tokens) == ("probe", 3.0)
    assert lengths.reason is not None
    assert "404" in lengths.reason


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        pytest.param(lambda path, body: (401, {"error": "no"}), "401", id="a wrong key"),
        pytest.param(lambda path, body: (200, b"<html>"), "no usable answer", id="no JSON"),
        pytest.param(lambda path, body: (200, {}), "no usage", id="an engine that counts nothing"),
        pytest.param(
            lambda path, body: (200, {"usage": {"prompt_tokens": 7}}),
            "tokens_per_word",
            id="a count that does not grow",
        ),
    ],
)
def test_what_cannot_be_found_out_is_assumed_and_said_why(reply: Reply, told: str) -> None:
    lengths = Server(reply).lengths()
    assert (lengths.source, lengths.tokens_per_word, lengths.overhead_tokens) == ("assumed", 1, 0)
    assert lengths.residual_tokens is None
    assert told in (lengths.reason or "")


def test_a_server_that_is_down_raises_nothing() -> None:
    def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        raise FetchError(URL, "connect", "connection refused")

    assert "refused" in (Server(reply).lengths().reason or "")
    assert asyncio.run(find_server_kind(URL, ask=Server(reply))) == "openai"


def test_the_key_is_sent_and_never_told() -> None:
    server = Server(lambda path, body: (403, b"no"))
    lengths = server.lengths(authorization="Bearer sk-1")
    assert {headers["authorization"] for headers in server.headers} == {"Bearer sk-1"}
    assert "sk-1" not in (lengths.reason or "")


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("llamacpp", "llamacpp"),
        ("tensorrt_llm", "trtllm"),
        ("mileage", "mileage"),
        ("system", "openai"),
    ],
)
def test_the_kind_of_server_is_told_by_who_owns_its_models(owner: str, kind: str) -> None:
    server = Server(lambda path, body: (200, {"data": [{"id": "m", "owned_by": owner}]}))
    assert asyncio.run(find_server_kind(URL, ask=server)) == kind
    assert server.paths == ["/v1/models"]


@pytest.mark.parametrize("answer", [b"<html>", {"data": None}, {"models": []}, []])
def test_a_list_that_tells_nothing_is_of_any_server(answer: Any) -> None:
    server = Server(lambda path, body: (200, answer))
    assert asyncio.run(find_server_kind(URL, ask=server)) == "openai"
