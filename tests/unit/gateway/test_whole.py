"""Whole answers: held, or passed on where they are large."""

from __future__ import annotations

import msgspec
import pytest

from mileage.gateway.whole import WholeAnswer

USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
MIB = 1024 * 1024


def test_a_small_answer_is_held_until_it_is_whole() -> None:
    whole = WholeAnswer()
    body = msgspec.json.encode({"choices": [], "usage": USAGE})
    assert whole.take(body[:5]) + whole.take(body[5:]) == b""
    assert whole.body() == body
    assert whole.usage().prompt_tokens == 7
    assert not whole.passing


@pytest.mark.parametrize("pad", [0, 2 * MIB], ids=["held", "passed on"])
def test_an_answer_that_was_cut_off_does_not_end_well(pad: int) -> None:
    body = msgspec.json.encode({"text": "x" * pad, "usage": USAGE}) + b"\n"
    whole, cut = WholeAnswer(), WholeAnswer()
    whole.take(body)
    cut.take(body[: len(body) * 3 // 4])
    assert whole.passing == cut.passing == bool(pad)
    assert whole.ends_well()
    assert not cut.ends_well()
    assert not WholeAnswer().ends_well()


@pytest.mark.parametrize("usage_first", [True, False])
def test_a_large_answer_is_passed_on_and_its_usage_found(usage_first: bool) -> None:
    data = {"data": [{"embedding": [0.25] * 1000}] * 500}
    fields = {"usage": USAGE} | data if usage_first else data | {"usage": USAGE}
    body = msgspec.json.encode(fields)
    assert len(body) > 2 * MIB
    whole = WholeAnswer()
    parts = [whole.take(body[i : i + 100_000]) for i in range(0, len(body), 100_000)]
    assert b"".join(parts) == body
    assert whole.passing
    assert parts[0] == b"", "held while it may be small"
    assert (whole.usage().prompt_tokens, whole.usage().output_tokens) == (7, 3)


def test_usage_in_a_large_answers_text_is_not_usage() -> None:
    fields = {"text": 'so "usage":{"prompt_tokens":99} it says', "pad": "x" * 2 * MIB}
    whole = WholeAnswer()
    whole.take(msgspec.json.encode(fields))
    assert whole.usage().prompt_tokens is None


@pytest.mark.parametrize(
    "tail", [b'"usage":{"prompt', b'"usage":{}', b'"usage":{"prompt_tokens":"7"}']
)
def test_usage_that_is_none_is_none(tail: bytes) -> None:
    whole = WholeAnswer()
    whole.take(b"x" * 2 * MIB + tail)
    assert whole.usage().prompt_tokens is None
