"""Journal codec: all comes back exactly; a torn end is told from damage."""

from __future__ import annotations

from random import Random
from typing import get_args
from zlib import crc32

import msgspec
import pytest

from mileage.control.journal import (
    PREFIX,
    BatchEncoder,
    Handled,
    JournalEnd,
    encode_header,
    guard,
)
from mileage.control.journal_decoder import JournalDecoder, JournalRecord
from mileage.core.actions import Action
from mileage.core.errors import TraceError
from mileage.core.events import Arrived, Event, FirstToken, Woke
from tests.support.journals import ACTIONS, EVENTS, header, request

HEADER = header()


def segment(*, end: bool = True, size: int = 1) -> tuple[bytes, list[bytes]]:
    """A segment with one record for each kind of event, in batches of `size`; its batches apart."""
    data = encode_header(HEADER)
    encoder = BatchEncoder()
    encoder.begin(data)
    calls: list[Handled] = [
        (0.1 * number, event, ACTIONS if number % 2 else (), None)
        for number, event in enumerate(EVENTS, 1)
    ]
    batches = [encoder.batch(calls[at : at + size]) for at in range(0, len(calls), size)]
    if end:
        batches.append(encoder.end("rotated"))
    return data + b"".join(batches), batches


def encoded(event: Event) -> bytes:
    return BatchEncoder().batch([(1.5, event, (), None)])


def prefix(version: int, length: int) -> bytes:
    head = PREFIX.pack(b"MILEAGEJ", version, length, 0)
    return head + crc32(head).to_bytes(4, "little")


def decode(data: bytes, piece: int = 1 << 20) -> tuple[list[JournalRecord], JournalDecoder]:
    decoder = JournalDecoder("a.mjl")
    records = []
    for place in range(0, len(data), piece):
        records += decoder.feed(data[place : place + piece])
    return records, decoder


def test_every_kind_of_event_and_action_has_an_example_here() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    assert {type(action) for action in ACTIONS} == set(get_args(Action))


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("piece", [1, 7, 100, 1 << 20])
def test_records_come_back_exactly_however_they_are_stored_and_read(piece: int, size: int) -> None:
    records, decoder = decode(segment(size=size)[0], piece)
    assert decoder.header == HEADER
    assert [r.number for r in records] == list(range(1, len(EVENTS) + 1))
    assert tuple(r.event for r in records) == EVENTS
    assert [r.now_s for r in records] == [0.1 * n for n in range(1, len(EVENTS) + 1)]
    assert [r.actions for r in records] == [ACTIONS if r.number % 2 else () for r in records]
    assert decoder.end == JournalEnd(len(EVENTS), "rotated")
    assert decoder.torn_bytes == 0


def test_a_record_is_an_array_without_names() -> None:
    assert len(encoded(FirstToken(1 << 60))) <= 32
    assert b"tenant" not in encoded(Arrived(request(1)))


def test_an_exception_of_the_controller_is_a_record() -> None:
    data = encode_header(HEADER)
    encoder = BatchEncoder()
    encoder.begin(data)
    data += encoder.batch([(2.0, EVENTS[0], (), "KeyError: 7")])
    (record,), _ = decode(data)
    assert record == JournalRecord(number=1, now_s=2.0, event=EVENTS[0], error="KeyError: 7")


@pytest.mark.parametrize("size", [1, 4])
def test_every_cut_is_a_torn_end_and_costs_the_cut_batch_only(size: int) -> None:
    data, batches = segment(size=size)
    ends = [len(data) - sum(map(len, batches[place:])) for place in range(len(batches) + 1)]
    for cut in range(len(data)):
        found, decoder = decode(data[:cut])
        assert decoder.end is None
        assert len(found) == min(len(EVENTS), size * sum(end <= cut for end in ends[1:]))
        whole = max([end for end in ends if end <= cut], default=0)
        assert decoder.torn_bytes == cut - whole


@pytest.mark.parametrize("size", [1, 4])
def test_any_damaged_byte_is_found_and_named(size: int) -> None:
    data, batches = segment(size=size)
    first = len(data) - sum(map(len, batches))
    random = Random(3)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= random.randrange(1, 256)
        with pytest.raises(TraceError) as caught:
            decode(bytes(damaged))
        assert caught.value.path == "a.mjl"
        if place < first:
            assert caught.value.line == 0
        else:
            end, number = first, 0
            while end <= place:
                end += len(batches[number])
                number += 1
            assert caught.value.line == min(len(EVENTS), size * (number - 1)) + 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda r: [*r[:2], *r[3:]], id="a record is missing"),
        pytest.param(lambda r: [r[0], r[2], r[1], *r[3:]], id="two records are exchanged"),
        pytest.param(lambda r: [*r, r[0]], id="a record follows the end"),
        pytest.param(lambda r: [r[0], *r], id="a record is there twice"),
    ],
)
def test_records_in_another_order_are_damage(change: object) -> None:
    data, batches = segment()
    first = data[: len(data) - sum(map(len, batches))]
    assert callable(change)
    with pytest.raises(TraceError):
        decode(first + b"".join(change(batches)))


def test_nothing_follows_the_end() -> None:
    data = encode_header(HEADER)
    encoder = BatchEncoder()
    encoder.begin(data)
    ended = data + encoder.end("stopped")
    batch = encoder.batch([(1.0, FirstToken(1), (), None)])
    with pytest.raises(TraceError, match=r"a.mjl:1: .*follows the segment's end"):
        decode(ended + batch)


def test_zeros_after_a_power_cut_are_a_torn_end() -> None:
    data, _ = segment(end=False)
    records, decoder = decode(data + bytes(5000), 512)
    assert len(records) == len(EVENTS)
    assert decoder.end is None
    with pytest.raises(TraceError, match="damaged"):
        decode(data + bytes(5000) + b"x", 512)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"{}", "no journal", id="another file"),
        pytest.param(prefix(1, 0), "format 1; this version reads 2", id="an older format"),
        pytest.param(prefix(3, 0), "has format 3", id="a newer format"),
        pytest.param(prefix(2, 1 << 31), "header's length", id="an endless header"),
        pytest.param(
            encode_header(header(events=(("teleported", ("id",)),))),
            "'teleported', which this version does not know",
            id="an unknown kind of event",
        ),
        pytest.param(
            encode_header(header(events=(("first_token", ("request_id", "colour")),))),
            r"\['colour'\], which this version does not know",
            id="an unknown field",
        ),
    ],
)
def test_what_this_version_cannot_read_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        decode(data)
    assert caught.value.line == 0


def test_fields_that_an_older_version_did_not_write_have_their_defaults() -> None:
    data = encode_header(header(events=(("finished", ("request_id", "output_tokens")),)))
    encoder = BatchEncoder()
    encoder.begin(data)
    (record,), _ = decode(data + encoder._frame([(0, 1.0, [7, 20])]))
    assert msgspec.structs.asdict(record.event)["output_tokens"] == 20
    assert msgspec.structs.asdict(record.event)["itl_p99_s"] is None


def test_arrivals_that_say_nothing_of_counting_are_of_estimated_prompts() -> None:
    request = EVENTS[0]
    assert isinstance(request, Arrived)
    written = msgspec.structs.asdict(request.request)
    del written["prompt_counted"]
    data = encode_header(header(events=(("arrived", tuple(written)),)))
    encoder = BatchEncoder()
    encoder.begin(data)
    (record,), _ = decode(data + encoder._frame([(0, 1.0, [*written.values()])]))
    assert record.event == request


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param((), id="nothing"),
        pytest.param((99, 1.0, []), id="no such kind"),
        pytest.param((-2, 1.0, []), id="a negative kind"),
        pytest.param((1, "now", [1]), id="no time"),
        pytest.param((1, 1.0, ["one"]), id="text for a number"),
        pytest.param((1, 1.0, []), id="too few fields"),
        pytest.param((1, 1.0, [1, 2]), id="too many fields"),
        pytest.param((1, 1.0, [1], [[0]]), id="an action without fields"),
        pytest.param((1, 1.0, [1], 3), id="no actions"),
        pytest.param((1, 1.0, [1], None, 3), id="an error that is no text"),
        pytest.param((-1, 5, "rotated"), id="an end that counts other records"),
        pytest.param((-1, 0, "vanished"), id="an end of no known kind"),
    ],
)
def test_a_sound_record_with_nonsense_in_it_is_refused(fields: tuple[object, ...]) -> None:
    data = encode_header(HEADER)
    encoder = BatchEncoder()
    encoder.begin(data)
    with pytest.raises(TraceError, match=r"a.mjl:1: is not readable"):
        decode(data + encoder._frame([fields]))


def test_nonsense_in_a_batch_is_named_by_its_place() -> None:
    data = encode_header(HEADER)
    encoder = BatchEncoder()
    encoder.begin(data)
    batch = encoder._frame([(1, 1.0, [1]), (1, 2.0, [2]), (1, 3.0, ["three"])])
    with pytest.raises(TraceError, match=r"a.mjl:3: is not readable"):
        decode(data + batch)
    encoder.begin(data)
    with pytest.raises(TraceError, match=r"a.mjl:1: is not readable"):
        decode(data + encoder._frame([3]))  # type: ignore[list-item]


def test_no_single_damaged_byte_of_a_length_goes_unseen() -> None:
    for length in (0, 1, 29, 255, 256, 65_535, 1 << 20, (1 << 24) - 1):
        word = guard(length)
        assert word & 0xFFFFFF == length
        for place in range(4):
            for change in range(1, 256):
                other = word ^ change << 8 * place
                assert guard(other & 0xFFFFFF) != other


def test_a_batch_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="is past"):
        encoded(Arrived(request(1, model="m" * (1 << 24))))


def test_a_wake_up_holds_nothing_but_its_time() -> None:
    assert len(encoded(Woke())) <= 21
