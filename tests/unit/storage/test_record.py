"""Records keep what they were made of, and a request cannot make one fail."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec
import pytest

from mileage.core.timeline import RequestTimeline
from mileage.storage.log_reader import Decoded, LogDecoder
from mileage.storage.record import (
    CHARGED_FIELDS,
    DETAILED,
    FINISH_FIELDS,
    HEADER,
    NAMED_FIELDS,
    RECORD_BYTES_MAX,
    RecordEncoder,
)
from tests.support.ledger_records import BASE_UTC_NS, request, streamed, timeline

MARKER = 0x1234ABCD


def decoded(record: bytes) -> Decoded:
    return LogDecoder("test.log", MARKER, 0).feed(record, final=True)


def test_the_format_holds_every_field_of_a_timeline_in_its_order() -> None:
    assert RequestTimeline.__struct_fields__ == FINISH_FIELDS


def test_an_intent_is_small_and_keeps_what_a_lost_request_needs() -> None:
    record = RecordEncoder(MARKER).intent(request(7), BASE_UTC_NS)
    assert len(record) < 80
    expected = (request(7).id, "team-1", "smollm2", "chat", False, BASE_UTC_NS)
    assert decoded(record).intents == [expected]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(timeline(1), id="an answer in one piece"),
        pytest.param(timeline(1, outcome="rejected", reason="x"), id="a refusal"),
        pytest.param(timeline(1, prompt_tokens=None, finished_s=None), id="without figures"),
    ],
)
def test_an_end_without_a_stream_is_brief(end: RequestTimeline) -> None:
    (row,) = decoded(RecordEncoder(MARKER).finish(end)).brief
    assert row == msgspec.structs.astuple(end)[: len(row)]


@pytest.mark.parametrize(
    ("end", "times"),
    [
        pytest.param(streamed(1), (12_300, 1, 22_300, 2, 300_000, 14), id="a stream"),
        pytest.param(streamed(1, token_times=()), None, id="a stream without token times"),
        pytest.param(timeline(1, trace_id="4bf9"), None, id="a trace id alone"),
        pytest.param(timeline(1, token_times=(5, 1)), (5, 1), id="token times alone"),
        pytest.param(timeline(1, merged_into=5, merged_members=2), None, id="a shared generation"),
    ],
)
def test_an_end_with_details_keeps_them(
    end: RequestTimeline, times: tuple[int, ...] | None
) -> None:
    (row,) = decoded(RecordEncoder(MARKER).finish(end)).detailed
    place = FINISH_FIELDS.index("token_times")
    blob = row[place]
    assert blob is None or isinstance(blob, bytes)
    assert (None if blob is None else tuple(msgspec.msgpack.decode(blob))) == times
    rest = msgspec.structs.replace(end, token_times=())
    assert (*row[:place], (), *row[place + 1 :]) == msgspec.structs.astuple(rest)


@pytest.mark.parametrize(
    "charge",
    [
        pytest.param({"gpu_ns": 123, "cost_nano_usd": 45}, id="with a price"),
        pytest.param({"gpu_ns": 0}, id="without one"),
    ],
)
def test_an_end_without_a_stream_and_its_charge_are_as_brief(charge: dict[str, int]) -> None:
    end = timeline(1, **charge)
    record = RecordEncoder(MARKER).finish(end)
    assert len(record) <= len(RecordEncoder(MARKER).finish(timeline(1))) + 10
    (row,) = decoded(record).charged
    assert row == tuple(getattr(end, name) for name in CHARGED_FIELDS)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({"key": "ci", "gpu_ns": 5}, id="a key and a charge"),
        pytest.param({"key": "ci"}, id="a key alone"),
        pytest.param({"adapter": "legal", "labels": "env=prod"}, id="an adapter and labels"),
    ],
)
def test_an_end_without_a_stream_and_who_it_was_for_are_as_brief(names: dict[str, Any]) -> None:
    end = timeline(1, **names)
    record = RecordEncoder(MARKER).finish(end)
    assert len(record) <= len(RecordEncoder(MARKER).finish(timeline(1))) + 25
    (row,) = decoded(record).named
    assert row == tuple(getattr(end, name) for name in NAMED_FIELDS)


@pytest.mark.parametrize(
    "first_missing",
    [
        pytest.param("key", id="before keys were told"),
        pytest.param("gpu_ns", id="before requests were charged"),
        pytest.param("merged_into", id="before generations were shared"),
    ],
)
def test_records_of_older_versions_are_read(first_missing: str) -> None:
    end = msgspec.structs.astuple(streamed(1, token_times=()))
    length = FINISH_FIELDS.index(first_missing)
    old = [None if value == () else value for value in end[:length]]
    payload = msgspec.msgpack.encode(old)
    word = DETAILED << 24 | len(payload)
    out = decoded(HEADER.pack(MARKER, word, crc32(payload, word)) + payload)
    assert out.damages == []
    (row,) = out.detailed
    assert row == (*old, *[None] * (len(FINISH_FIELDS) - length))


def test_a_record_of_no_known_length_is_damage() -> None:
    payload = msgspec.msgpack.encode([1, "a"])
    word = DETAILED << 24 | len(payload)
    out = decoded(HEADER.pack(MARKER, word, crc32(payload, word)) + payload)
    assert (out.detailed, out.damages_total) == ([], 1)


def test_token_times_can_be_left_out() -> None:
    (row,) = decoded(RecordEncoder(MARKER, token_times=False).finish(streamed(1))).detailed
    assert row[FINISH_FIELDS.index("token_times")] is None
    assert row[FINISH_FIELDS.index("itl_p99_s")] == 0.02


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        pytest.param({"prompt_tokens": 10**30}, {"prompt_tokens": None}, id="a huge number"),
        pytest.param({"model": "a\ud800b"}, {"model": "a?b"}, id="half a surrogate pair"),
        pytest.param({"reason": "x" * 300_000}, {"reason": "x" * 1024}, id="a huge text"),
        pytest.param(
            {"token_times": tuple(range(200_000)), "itl_max_s": 0.5},
            {"token_times": None, "itl_max_s": 0.5},
            id="more token times than a record holds",
        ),
        pytest.param(
            {"token_times": (1, 10**30), "output_tokens": -(10**30)},
            {"token_times": None, "output_tokens": None},
            id="token times that are no time",
        ),
    ],
)
def test_whatever_an_end_contains_becomes_a_record(
    changes: dict[str, Any], kept: dict[str, Any]
) -> None:
    record = RecordEncoder(MARKER).finish(timeline(1, **changes))
    assert len(record) <= RECORD_BYTES_MAX + HEADER.size
    out = decoded(record)
    (row,) = out.brief or out.detailed
    found = dict(zip(FINISH_FIELDS, row, strict=False))
    assert {key: found.get(key) for key in kept} == kept
    assert found["id"] == timeline(1).id


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        pytest.param("m" * 300_000, "m" * 1024, id="too long"),
        pytest.param("\udfff", "?", id="no valid Unicode"),
    ],
)
def test_whatever_an_intent_contains_becomes_a_record(model: str, kept: str) -> None:
    record = RecordEncoder(MARKER).intent(request(1, model=model), BASE_UTC_NS)
    assert [row[2] for row in decoded(record).intents] == [kept]
