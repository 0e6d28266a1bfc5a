"""Silence: begins with a question, ends with a byte, and with nothing else."""

from __future__ import annotations

import pytest

from mileage.loadgen.silence import Silence
from mileage.measure.call_record import CallRecord
from tests.support.call_records import answer, streamed

LIMIT_S = 10.0


def too_long(silence: Silence, now_s: float, heard_s: float | None = None) -> bool:
    return silence.is_too_long(now_s, lambda: heard_s)


def test_it_begins_with_the_first_call_that_waits() -> None:
    silence = Silence(LIMIT_S)
    assert not too_long(silence, 1000.0)  # nobody asked
    silence.asked(1000.0)
    silence.asked(1009.0)
    assert not too_long(silence, 1009.9)
    assert too_long(silence, 1010.0)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(answer(5.0, 8.0), False, id="an answer ends it"),
        pytest.param(answer(5.0, 8.0, outcome="server_error"), False, id="so does a refusal"),
        pytest.param(streamed([6.0], outcome="cut"), False, id="and a part of an answer"),
        pytest.param(streamed([6.0], outcome="timeout"), False, id="though its rest did not come"),
        pytest.param(answer(5.0, 8.0, outcome="timeout"), True, id="a timeout does not"),
        pytest.param(answer(5.0, 8.0, outcome="connect"), True, id="nor a failed connection"),
        pytest.param(answer(5.0, 8.0, outcome="cancelled"), True, id="nor leaving it"),
    ],
)
def test_what_ends_it(record: CallRecord, expected: bool) -> None:
    silence = Silence(LIMIT_S)
    silence.asked(5.0)
    silence.over(record)
    assert too_long(silence, 20.0) is expected


def test_what_came_before_it_does_not_end_it() -> None:
    silence = Silence(LIMIT_S)
    silence.asked(50.0)
    silence.over(streamed([6.0], outcome="timeout"))  # its last byte is long ago
    assert too_long(silence, 60.0)


def test_an_answer_under_way_is_no_silence() -> None:
    silence = Silence(LIMIT_S)
    silence.asked(0.0)
    assert not too_long(silence, 12.0, heard_s=3.0)
    assert not too_long(silence, 12.9, heard_s=3.0)
    assert too_long(silence, 13.0, heard_s=3.0)
