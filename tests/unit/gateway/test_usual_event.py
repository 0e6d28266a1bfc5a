"""UsualEvent: what it takes for one more token is exactly one event that has no other meaning."""

from __future__ import annotations

import pytest

from mileage.gateway.usual_event import UsualEvent

BEFORE = b'data: {"choices":[{"index":0,"delta":{"content":"'
AFTER = b'"},"finish_reason":null}]}\n\n'


def learned(text: bytes = b" a", after: bytes = AFTER) -> UsualEvent:
    usual = UsualEvent()
    usual.learn(BEFORE + text + after)
    return usual


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(BEFORE + b" a" + AFTER, id="the same text"),
        pytest.param(BEFORE + b"x" + AFTER, id="a shorter one"),
        pytest.param(BEFORE + "длиннее".encode() + AFTER, id="a longer one"),
        pytest.param(BEFORE + b"a\\n" + AFTER, id="an escape that is no quote"),
    ],
)
def test_an_event_with_another_text_is_like_the_one_before(data: bytes) -> None:
    assert learned().matches(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(BEFORE + AFTER, id="no text"),
        pytest.param(BEFORE[:-1] + AFTER, id="beginning and end overlap"),
        pytest.param(BEFORE + b'a\\"b' + AFTER, id="a quote in the text"),
        pytest.param((BEFORE + b"a" + AFTER) * 2, id="two events"),
        pytest.param(BEFORE + b"a" + AFTER[:-1], id="not whole"),
        pytest.param(BEFORE + b"a" + AFTER + b": ping\n\n", id="a comment behind it"),
        pytest.param(BEFORE + b'a"},"finish_reason":"stop"}]}\n\n', id="another end"),
        pytest.param(BEFORE + b'a","role":"x' + AFTER, id="another field"),
        pytest.param(BEFORE.replace(b"0", b"1") + b"a" + AFTER, id="another choice"),
    ],
)
def test_all_else_is_to_be_looked_at(data: bytes) -> None:
    assert not learned().matches(data)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(b'data: {"choices":[{"text":"a"}]}\n\n', id="its text is elsewhere"),
        pytest.param(BEFORE + AFTER, id="it has no text"),
        pytest.param(BEFORE + b'\\"' + AFTER, id="its text has a quote"),
        pytest.param(BEFORE + b"a", id="it does not end"),
    ],
)
def test_nothing_is_learned_of_an_event_in_another_form(event: bytes) -> None:
    usual = UsualEvent()
    usual.learn(event)
    assert not usual.matches(event)
    assert not usual.matches(b"")
