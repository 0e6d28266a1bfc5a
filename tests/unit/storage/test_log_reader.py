"""The decoder takes pieces, tolerates a torn end, and skips and reports what is damaged."""

from __future__ import annotations

from zlib import crc32

import msgspec
import pytest

from mileage.storage.log_reader import DAMAGES_MAX, LogDecoder
from mileage.storage.record import HEADER, RecordEncoder
from tests.support.ledger_records import BASE_UTC_NS, request, timeline

MARKER = 0x00112233
ENCODER = RecordEncoder(MARKER)


def intent(number: int) -> bytes:
    return ENCODER.intent(request(number), BASE_UTC_NS)


def finish(number: int) -> bytes:
    return ENCODER.finish(timeline(number))


def flipped(record: bytes, index: int) -> bytes:
    return record[:index] + bytes([record[index] ^ 0x40]) + record[index + 1 :]


def test_records_come_out_in_their_order_and_kind() -> None:
    decoder = LogDecoder("a.log", MARKER, 0)
    out = decoder.feed(intent(1) + intent(2) + finish(2) + finish(1), final=False)
    assert [row[0] for row in out.intents] == [request(1).id, request(2).id]
    assert [row[0] for row in out.brief] == [timeline(2).id, timeline(1).id]
    assert (decoder.records, out.damages_total, out.torn_bytes) == (4, 0, 0)


def test_an_incomplete_record_waits_for_the_rest() -> None:
    data = intent(1) + finish(1)
    decoder = LogDecoder("a.log", MARKER, 0)
    out = decoder.feed(data[:-1], final=False)
    assert (len(out.intents), len(out.brief), decoder.offset) == (1, 0, len(intent(1)))
    out = decoder.feed(data[decoder.offset :], final=False)
    assert (len(out.intents), len(out.brief), decoder.offset) == (0, 1, len(data))


@pytest.mark.parametrize("cut", [1, 8, 12, 40])
def test_a_torn_end_is_no_damage(cut: int) -> None:
    decoder = LogDecoder("a.log", MARKER, 0)
    out = decoder.feed(intent(1) + finish(1)[:cut], final=True)
    assert (len(out.intents), out.damages_total, out.torn_bytes) == (1, 0, cut)


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(0, id="marker"),
        pytest.param(4, id="length, now longer"),
        pytest.param(6, id="length, now beyond the bound"),
        pytest.param(7, id="kind"),
        pytest.param(8, id="checksum"),
        pytest.param(HEADER.size, id="first byte of the payload"),
        pytest.param(-1, id="last byte of the payload"),
    ],
)
@pytest.mark.parametrize("final", [True, False])
def test_a_damaged_record_is_skipped_and_reported_with_file_record_and_offset(
    index: int, final: bool
) -> None:
    bad = finish(2)
    decoder = LogDecoder("a.log", MARKER, 1000)
    data = intent(1) + flipped(bad, index % len(bad)) + b"".join(map(finish, range(3, 9)))
    out = decoder.feed(data, final=final)
    assert [row[0] for row in out.brief] == [timeline(n).id for n in range(3, 9)]
    assert out.damages_total == 1
    assert str(out.damages[0]) == f"a.log:2: a damaged record at byte {1000 + len(intent(1))}"
    assert out.torn_bytes == 0


def test_damage_that_spans_pieces_is_reported_once() -> None:
    data = intent(1) + b"\xff" * 5000 + finish(1)
    decoder = LogDecoder("a.log", MARKER, 0)
    damages, ends = 0, 0
    while decoder.offset < len(data):
        out = decoder.feed(data[decoder.offset : decoder.offset + 500], final=False)
        damages, ends = damages + out.damages_total, ends + len(out.brief)
    assert (damages, ends) == (1, 1)


@pytest.mark.parametrize("split", range(1, HEADER.size))
def test_a_record_after_damage_is_found_wherever_a_piece_ends(split: int) -> None:
    data = b"\xff" * 100 + intent(1)
    decoder = LogDecoder("a.log", MARKER, 0)
    decoder.feed(data[: 100 + split], final=False)
    out = decoder.feed(data[decoder.offset :], final=False)
    assert (len(out.intents), out.damages_total) == (1, 0)


def test_a_bad_record_can_be_waited_for() -> None:
    bad = flipped(finish(1), 20)
    decoder = LogDecoder("a.log", MARKER, 0)
    out = decoder.feed(intent(1) + bad + finish(2), final=False, skip=False)
    assert (decoder.waiting, decoder.offset, out.damages_total) == (True, len(intent(1)), 0)
    out = decoder.feed(finish(1) + finish(2), final=False, skip=False)
    assert (decoder.waiting, len(out.brief)) == (False, 2)


def test_many_damages_are_counted_but_only_some_described() -> None:
    data = b"".join(flipped(intent(n), 20) + intent(n) for n in range(50))
    out = LogDecoder("a.log", MARKER, 0).feed(data, final=True)
    assert (len(out.intents), out.damages_total, len(out.damages)) == (50, 50, DAMAGES_MAX)


def test_text_inside_a_damaged_record_does_not_pass_for_a_record() -> None:
    forged = RecordEncoder(MARKER ^ 1).finish(timeline(666)).decode("latin-1")
    record = ENCODER.finish(timeline(1, reason=forged))
    out = LogDecoder("a.log", MARKER, 0).feed(flipped(record, 20) + finish(2), final=True)
    assert [row[0] for row in out.brief] == [timeline(2).id]


@pytest.mark.parametrize(
    ("records", "damages"),
    [
        pytest.param(2, 0, id="as many as are here"),
        pytest.param(3, 1, id="more than are here"),
    ],
)
def test_the_footer_tells_how_many_records_there_were(records: int, damages: int) -> None:
    decoder = LogDecoder("a.log", MARKER, 0)
    data = intent(1) + finish(1) + ENCODER.footer(records, last=True)
    out = decoder.feed(data, final=True)
    assert (out.damages_total, decoder.ended) == (damages, True)


def test_a_record_of_an_unknown_kind_or_content_is_reported_and_passed_over() -> None:
    def raw(kind: int, content: object) -> bytes:
        payload = msgspec.msgpack.encode(content)
        word = kind << 24 | len(payload)
        return HEADER.pack(MARKER, word, crc32(payload, word)) + payload

    data = raw(99, 1) + raw(1, ("no", "intent")) + raw(2, "x") + intent(1)
    out = LogDecoder("a.log", MARKER, 0).feed(data, final=True)
    assert (len(out.intents), len(out.brief), out.damages_total) == (1, 0, 3)


def test_ends_that_were_not_written_are_told() -> None:
    data = ENCODER.dropped("No space left on device", [1, 2])
    out = LogDecoder("a.log", MARKER, 0).feed(data, final=False)
    assert out.dropped == [("No space left on device", [1, 2])]
