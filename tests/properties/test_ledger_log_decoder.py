"""Whatever happens to the bytes of a log, the decoder ends, and gives only what was written."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.storage.log_reader import LogDecoder
from mileage.storage.record import RecordEncoder
from mileage.storage.segment import SegmentHeader
from tests.support.ledger_records import BASE_UTC_NS, request, streamed, timeline

MARKER = 0x9E3779B9
ENCODER = RecordEncoder(MARKER)
KINDS = (
    lambda number: ENCODER.intent(request(number), BASE_UTC_NS),
    lambda number: ENCODER.finish(timeline(number)),
    lambda number: ENCODER.finish(streamed(number)),
    lambda number: ENCODER.dropped("full", [number]),
)
Found = list[tuple[str, Any]]

records = st.lists(st.sampled_from(KINDS), max_size=12).map(
    lambda kinds: [kind(number) for number, kind in enumerate(kinds)]
)


def decode(data: bytes, pieces: list[int], *, skip: bool = True) -> tuple[Found, LogDecoder, int]:
    """Everything in `data`, fed in reads of these sizes, the last one to the end; and damages."""
    decoder = LogDecoder("a.log", MARKER, 0)
    found: Found = []
    damages = 0
    seen = 0
    for piece in pieces:
        seen = min(len(data), seen + piece)
        out = decoder.feed(data[decoder.offset : seen], final=False, skip=skip)
        found += rows(out)
        damages += out.damages_total
        assert decoder.offset <= seen
    out = decoder.feed(data[decoder.offset :], final=True)
    assert decoder.offset == len(data)
    return found + rows(out), decoder, damages + out.damages_total


def rows(out: Any) -> Found:
    return [
        (kind, row)
        for kind in ("intents", "brief", "detailed", "dropped")
        for row in getattr(out, kind)
    ]


def written(record: bytes) -> tuple[str, Any]:
    """What one sound record gives."""
    (row,) = rows(LogDecoder("a.log", MARKER, 0).feed(record, final=True))
    return row


@given(records, st.lists(st.integers(0, 400), max_size=20), st.booleans())
def test_sound_records_come_out_whole_however_they_are_read(
    some: list[bytes], pieces: list[int], skip: bool
) -> None:
    found, decoder, damages = decode(b"".join(some), pieces, skip=skip)
    assert sorted(map(repr, found)) == sorted(repr(written(record)) for record in some)
    assert (decoder.records, damages) == (len(some), 0)


@given(records, st.data(), st.lists(st.integers(0, 400), max_size=20))
def test_a_cut_loses_the_cut_record_only(
    some: list[bytes], data: st.DataObject, pieces: list[int]
) -> None:
    whole = b"".join(some)
    cut = data.draw(st.integers(0, len(whole)))
    found, _, damages = decode(whole[:cut], pieces)
    kept, size = [], 0
    for record in some:
        size += len(record)
        if size <= cut:
            kept.append(repr(written(record)))
    assert sorted(map(repr, found)) == sorted(kept)
    assert damages == 0


edits = st.lists(
    st.tuples(
        st.sampled_from(("flip", "insert", "delete", "copy")),
        st.integers(0, 1 << 16),
        st.integers(0, 255),
        st.binary(min_size=1, max_size=40),
    ),
    min_size=1,
    max_size=6,
)


def damaged(data: bytes, changes: list[tuple[str, int, int, bytes]]) -> bytes:
    for how, where, amount, inserted in changes:
        at = where % (len(data) + 1)
        if how == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (amount or 1)]) + data[at + 1 :]
        elif how == "insert":
            data = data[:at] + inserted + data[at:]
        elif how == "delete":
            data = data[:at] + data[at + amount :]
        elif how == "copy":
            data = data[:at] + data[at // 2 : at // 2 + amount] + data[at:]
    return data


@given(records, edits, st.lists(st.integers(0, 400), max_size=20), st.booleans())
@settings(max_examples=300)
def test_damage_never_makes_a_record_that_was_not_written(
    some: list[bytes], changes: list[tuple[str, int, int, bytes]], pieces: list[int], skip: bool
) -> None:
    found, _, _ = decode(damaged(b"".join(some), changes), pieces, skip=skip)
    assert set(map(repr, found)) <= {repr(written(record)) for record in some}


@given(
    records,
    st.integers(0, 11),
    st.integers(0, 1 << 16),
    st.integers(1, 255),
    st.lists(st.integers(0, 400), max_size=20),
)
def test_one_damaged_byte_costs_one_record(
    some: list[bytes], which: int, where: int, flip: int, pieces: list[int]
) -> None:
    if not some:
        return
    which %= len(some)
    sound = [repr(written(record)) for record in some]
    bad = bytearray(some[which])
    bad[where % len(bad)] ^= flip
    found, _, damages = decode(b"".join([*some[:which], bytes(bad), *some[which + 1 :]]), pieces)
    assert sorted(map(repr, found)) == sorted(sound[:which] + sound[which + 1 :])
    # At the very end a damaged length cannot be told from a record that was cut.
    assert damages == 1 or which == len(some) - 1


@given(st.binary(max_size=3000), st.lists(st.integers(0, 400), max_size=20), st.booleans())
def test_any_bytes_are_read_to_their_end(data: bytes, pieces: list[int], skip: bool) -> None:
    found, _, _ = decode(data, pieces, skip=skip)
    assert found == []


@given(st.binary(max_size=100))
def test_any_bytes_are_a_header_or_none(data: bytes) -> None:
    header = SegmentHeader.decode(data)
    assert header is None or header.encode() == data[: len(header.encode())]
