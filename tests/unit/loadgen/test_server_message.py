"""server_message(): the server's words, short, without the prompt."""

from __future__ import annotations

import msgspec
import pytest

from mileage.loadgen.server_message import server_message

PROMPT = "the confidential figures of the third quarter are as follows"
REQUEST = msgspec.json.encode(
    {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "max_completion_tokens": 5,
        "messages": [{"role": "user", "content": f'line one\n"{PROMPT}"'}],
    }
)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(b'{"error": {"message": "no such model"}}', "no such model", id="OpenAI"),
        pytest.param(b'{"error": "overloaded"}', "overloaded", id="an error of text"),
        pytest.param(b'{"message": "bad"}', "bad", id="a message alone"),
        pytest.param(b'{"detail": "Not Found"}', "Not Found", id="FastAPI"),
        pytest.param(
            b'{"detail": [{"msg": "a", "input": "p"}, {"msg": "b"}]}', "a; b", id="FastAPI's list"
        ),
        pytest.param(b'{"error": {"code": 3}}', None, id="an error without a message"),
        pytest.param(b"<html>502</html>", None, id="a page"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"[" * 100_000, None, id="nested without end"),
        pytest.param(b'{"message": "two\\n  lines"}', "two lines", id="one line is made"),
    ],
)
def test_the_message_is_found_in_the_usual_places(answer: bytes, message: str | None) -> None:
    assert server_message(answer) == message


def test_a_long_message_is_cut() -> None:
    answer = msgspec.json.encode({"message": "ab " * 1000})
    message = server_message(answer)
    assert message is not None
    assert len(message) == 300
    assert message.endswith("...")


def test_what_quotes_the_request_is_left_out() -> None:
    text = f"1 validation error: 'input': [{{'content': 'line one\\n\"{PROMPT}\"'}}], too long"
    message = server_message(msgspec.json.encode({"message": text}), request=REQUEST)
    assert message is not None
    assert "confidential" not in message
    assert "quarter" not in message
    assert message.startswith("1 validation error")
    assert message.endswith("too long")


def test_the_models_name_and_the_keys_may_be_told() -> None:
    text = "meta-llama/Llama-3.1-8B-Instruct does not exist; max_completion_tokens is ignored"
    message = server_message(
        msgspec.json.encode({"message": text}),
        request=REQUEST,
        model="meta-llama/Llama-3.1-8B-Instruct",
    )
    assert message == text
