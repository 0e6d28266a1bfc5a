"""Usage out of answers, in each API's form."""

from __future__ import annotations

import pytest

from mileage.gateway.usage import usage_of_answer


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            b'{"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}',
            (3, None, 5, None),
            id="chat",
        ),
        pytest.param(
            b'{"usage":{"prompt_tokens":3,"completion_tokens":5,"prompt_tokens_details":'
            b'{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":4}}}',
            (3, 2, 5, 4),
            id="chat with details",
        ),
        pytest.param(
            b'{"usage":{"input_tokens":3,"output_tokens":5,"input_tokens_details":'
            b'{"cached_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}}',
            (3, 0, 5, 0),
            id="responses",
        ),
        pytest.param(
            b'{"usage":{"input_tokens":3,"cache_read_input_tokens":9,"output_tokens":5}}',
            (12, 9, 5, None),
            id="messages: its input_tokens do not hold the cached ones",
        ),
        pytest.param(b'{"usage":null}', (None,) * 4, id="null"),
        pytest.param(b"{}", (None,) * 4, id="none"),
        pytest.param(b"[1]", (None,) * 4, id="no object"),
        pytest.param(b"\xff\x00", (None,) * 4, id="no JSON"),
        pytest.param(b'{"usage":{"prompt_tokens":"3"}}', (None,) * 4, id="text"),
        pytest.param(b'{"usage":{"prompt_tokens":-3}}', (None,) * 4, id="negative"),
        pytest.param(
            b'{"usage":{"prompt_tokens":3,"completion_tokens":1%b}}' % (b"0" * 400),
            (3, None, None, None),
            id="more than there can be",
        ),
        pytest.param(b"[" * 10**5, (None,) * 4, id="deep"),
    ],
)
def test_usage_of_answer(body: bytes, expected: tuple[int | None, ...]) -> None:
    usage = usage_of_answer(body)
    got = (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens)
    assert got == expected
