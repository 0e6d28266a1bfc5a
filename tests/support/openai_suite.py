"""What the official `openai` client must be able to do through the gateway, on any real engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.served import Served

__all__ = ["OpenAiSuite"]

HI: list[Any] = [{"role": "user", "content": "Say hi."}]
COUNT: list[Any] = [{"role": "user", "content": "Count from one to one thousand."}]
NO_END = {"ignore_eos": True}
"""An extension that llama.cpp and vLLM share: generate until max_tokens."""
LONG_TOKENS = 1500
"""Takes any of the engines longer than GIVEN_UP_S here."""
GIVEN_UP_S = 15.0
STREAMS = 20
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
YES_OR_NO: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    },
}


class OpenAiSuite:
    """Tests of one model on one engine; a subclass's module has the fixture `served`."""

    @pytest.fixture
    def client(self, served: Served) -> Iterator[openai.OpenAI]:
        with served.client() as client:
            yield client

    def test_chat(self, served: Served, client: openai.OpenAI) -> None:
        answer = client.chat.completions.create(
            model=served.model, messages=HI, max_tokens=8, temperature=0
        )
        assert answer.model == served.model
        assert answer.choices[0].message.content
        assert answer.choices[0].finish_reason in ("length", "stop")
        assert answer.usage is not None
        row = served.row(answer._request_id)
        assert (row["outcome"], row["endpoint"], row["stream"]) == ("ok", "chat", False)
        assert row["prompt_tokens"] == answer.usage.prompt_tokens > 0
        assert row["output_tokens"] == answer.usage.completion_tokens > 0

    @pytest.mark.parametrize(
        ("options", "shown"),
        [
            pytest.param({}, False, id="not asked for"),
            pytest.param({"stream_options": {"include_usage": False}}, False, id="declined"),
            pytest.param({"stream_options": {"include_usage": True}}, True, id="asked for"),
        ],
    )
    def test_stream_shows_usage_to_who_asked_and_records_it_always(
        self, served: Served, client: openai.OpenAI, options: dict[str, Any], shown: bool
    ) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model=served.model, messages=HI, max_tokens=8, stream=True, **options
        )
        chunks = list(raw.parse())
        with_usage = [chunk for chunk in chunks if chunk.usage is not None]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        finished = [c.choices[0].finish_reason for c in chunks if c.choices]
        assert finished[-1] in ("length", "stop")
        row = served.row(raw.headers["x-request-id"])
        assert (row["outcome"], row["stream"]) == ("ok", True)
        assert row["prompt_tokens"] > 0
        assert 0 < row["output_tokens"] <= 8
        assert 0 < row["first_token_s"] <= row["last_token_s"] <= row["finished_s"]
        if shown:
            assert with_usage == chunks[-1:]
            assert chunks[-1].choices == []
            assert chunks[-1].usage.completion_tokens == row["output_tokens"]
        else:
            assert with_usage == []
            assert all(chunk.choices for chunk in chunks)

    def test_completions(self, served: Served, client: openai.OpenAI) -> None:
        answer = client.completions.create(model=served.model, prompt="1, 2, 3,", max_tokens=6)
        assert answer.choices[0].text
        stream = client.completions.create(
            model=served.model, prompt="1, 2, 3,", max_tokens=6, stream=True
        )
        assert "".join(chunk.choices[0].text for chunk in stream)

    def test_response_format_is_obeyed(self, served: Served, client: openai.OpenAI) -> None:
        answer = client.chat.completions.create(
            model=served.model, messages=HI, max_tokens=64, response_format=YES_OR_NO
        )
        verdict = json.loads(answer.choices[0].message.content or "")
        assert verdict["answer"] in ("yes", "no")

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_tools(self, served: Served, client: openai.OpenAI, stream: bool) -> None:
        answer: Any = client.chat.completions.create(
            model=served.model, messages=HI, max_tokens=64, tools=[WEATHER], stream=stream,
            tool_choice="required",
        )  # fmt: skip
        name, arguments, text = "", "", ""
        for part in answer if stream else [answer]:
            for choice in part.choices:
                message = choice.delta if stream else choice.message
                text += message.content or ""
                for call in message.tool_calls or ():
                    name += call.function.name or ""
                    arguments += call.function.arguments or ""
        self.check_tools(name, arguments, text)

    def check_tools(self, name: str, arguments: str, text: str) -> None:
        """A model without tools in its template may ignore them, but must answer."""
        assert text or (name == "get_weather" and json.loads(arguments)["city"])

    def test_embeddings(self, served: Served, client: openai.OpenAI) -> None:
        texts = ["hello", "a goose"]
        for encoding in ("base64", "float"):
            answer = client.embeddings.create(
                model=served.model,
                input=texts,
                encoding_format=encoding,
            )
            vectors = [entry.embedding for entry in answer.data]
            assert [len(vector) > 100 for vector in vectors] == [True, True]
            assert vectors[0] != vectors[1]
            row = served.row(answer._request_id)
            assert (row["endpoint"], row["outcome"]) == ("embeddings", "ok")
            assert row["prompt_tokens"] == answer.usage.prompt_tokens > 0

    def test_models(self, served: Served, client: openai.OpenAI) -> None:
        assert served.model in [model.id for model in client.models.list()]
        assert client.models.retrieve(served.model).id == served.model
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("no-such-model")
        assert caught.value.code == "model_not_found"

    def test_unknown_model(self, served: Served, client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="no-such-model", messages=HI)
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
        row = served.row(caught.value.response.headers["x-request-id"])
        assert (row["outcome"], row["status"]) == ("rejected", 404)

    @pytest.mark.parametrize("max_tokens", [-1, 0, 10**12, "many", 1.5])
    def test_bad_max_tokens(self, served: Served, client: openai.OpenAI, max_tokens: Any) -> None:
        with pytest.raises(openai.BadRequestError, match="max_tokens") as caught:
            client.chat.completions.create(model=served.model, messages=HI, max_tokens=max_tokens)
        assert caught.value.param == "max_tokens"

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_prompt_above_the_context(
        self, served: Served, client: openai.OpenAI, stream: bool
    ) -> None:
        words = "word " * (served.context_tokens + 100)
        with pytest.raises(openai.BadRequestError, match="context") as caught:
            client.chat.completions.create(
                model=served.model, messages=[{"role": "user", "content": words}], stream=stream
            )
        row = served.row(caught.value.response.headers["x-request-id"])
        assert (row["outcome"], row["status"]) == ("ok", 400)

    def test_cancelled_stream_frees_the_engine(self, served: Served, client: openai.OpenAI) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model=served.model, messages=COUNT, max_tokens=LONG_TOKENS, stream=True,
            extra_body=NO_END,
        )  # fmt: skip
        stream = raw.parse()
        next(chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
        served.wait_running(1, served.timeout_s)
        stream.close()
        served.wait_running(0, GIVEN_UP_S)
        row = served.row(raw.headers["x-request-id"])
        assert (row["outcome"], row["reason"]) == ("cancelled", "client_gone")
        assert row["output_tokens_counted"] >= 1

    def test_client_s_timeout_frees_the_engine(self, served: Served, client: openai.OpenAI) -> None:
        started_s = time.monotonic()
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=2.0).chat.completions.create(
                model=served.model, messages=COUNT, max_tokens=LONG_TOKENS, extra_body=NO_END
            )
        assert 2.0 <= time.monotonic() - started_s < served.timeout_s
        served.unanswered += 1
        served.wait_running(0, GIVEN_UP_S)
        assert served.rows()[0]["outcome"] == "cancelled"

    def test_concurrent_streams_of_the_async_client(self, served: Served) -> None:
        async def one(client: openai.AsyncOpenAI, number: int) -> str:
            messages: list[Any] = [{"role": "user", "content": f"Say {number}."}]
            stream = await client.chat.completions.create(
                model=served.model, messages=messages, max_tokens=4, stream=True
            )
            pieces = [c.choices[0].delta.content or "" async for c in stream if c.choices]
            return "".join(pieces)

        async def all_of_them() -> list[str]:
            async with served.async_client() as client:
                return await asyncio.gather(*(one(client, n) for n in range(STREAMS)))

        answered = len(served.answered)
        assert all(asyncio.run(all_of_them()))
        assert len(served.answered) - answered == STREAMS
        outcomes = [row["outcome"] for row in served.rows()[:STREAMS]]
        assert outcomes == ["ok"] * STREAMS
