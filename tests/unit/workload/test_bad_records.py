"""Broken records: an error by default, else left out, counted and named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mileage.core.errors import ConfigError, TraceError
from mileage.workload.columns import azure_columns
from mileage.workload.read_options import ReadOptions, ReadTally
from tests.support.traces import AZURE, BURSTGPT, MOONCAKE, read

JSONL = [
    b'{"arrived_s": 0, "prompt_tokens": 9, "output_tokens": 1}',
    b'{"arrived_s": 1, "prompt_tokens": 9, "output_tokens": 2}',
    b'{"arrived_s": 2, "prompt_tokens": 9, "output_tokens": 3}',
]
CSV = [b"arrived_s,prompt_tokens,output_tokens", b"0,9,1", b"1,9,2", b"2,9,3"]
TABLE = [b"time,isl,osl", b"100,9,1", b"101,9,2", b"102,9,3"]

CASES = [
    pytest.param(AZURE, 2, b"2023-11-16 18:16:00.0000001,many,109", "ContextTokens", id="azure"),
    pytest.param(AZURE, 2, b"2023-11-16 18:16", "1 fields", id="azure, half a line"),
    pytest.param(AZURE, 2, b"yesterday,396,109", "TIMESTAMP", id="azure, no time"),
    pytest.param(MOONCAKE, 1, b'{"timestamp": 0, "inp', "no JSON", id="mooncake, half a line"),
    pytest.param(
        MOONCAKE,
        1,
        b'{"timestamp": 0, "input_length": -1, "output_length": 7}',
        "input_length",
        id="mooncake, a length below 0",
    ),
    pytest.param(BURSTGPT, 1, b"x,ChatGPT,472,18,490,log", "Timestamp", id="burstgpt, the first"),
    pytest.param(BURSTGPT, 1, b"5,ChatGPT", "2 fields", id="burstgpt, half a line"),
    pytest.param(JSONL, 1, b"{}", "arrived_s", id="jsonl, nothing in it"),
    pytest.param(JSONL, 1, JSONL[1].replace(b"9", b"0"), "prompt_tokens", id="jsonl, no prompt"),
    pytest.param(CSV, 2, b"1,9,x", "output_tokens", id="csv, no number"),
    pytest.param(CSV, 2, b"1,9", "2 fields", id="csv, half a line"),
    pytest.param(TABLE, 1, b"soon,9,1", "time", id="a table, the first"),
    pytest.param(TABLE, 2, b"101,-9,2", "isl", id="a table, a length below 0"),
]


@pytest.mark.parametrize(("lines", "place", "bad", "told"), CASES)
def test_a_broken_record_is_an_error(
    lines: Sequence[bytes], place: int, bad: bytes, told: str
) -> None:
    broken = [*lines[:place], bad, *lines[place + 1 :]]
    with pytest.raises(TraceError, match=told) as caught:
        read(broken)
    assert caught.value.line == place + 1


@pytest.mark.parametrize(("lines", "place", "bad", "told"), CASES)
def test_or_it_is_left_out_counted_and_named(
    lines: Sequence[bytes], place: int, bad: bytes, told: str
) -> None:
    tally = ReadTally()
    broken = [*lines[:place], bad, *lines[place + 1 :]]
    without = [*lines[:place], *lines[place + 1 :]]
    assert read(broken, bad_max=1, tally=tally) == read(without)
    assert (tally.bad, len(tally.bad_named)) == (1, 1)
    assert tally.bad_named[0].startswith(f"t:{place + 1}: ")
    assert told in tally.bad_named[0]


def test_one_more_than_forgiven_is_an_error_again() -> None:
    tally = ReadTally()
    with pytest.raises(TraceError) as caught:
        read([JSONL[0], b"{}", JSONL[1], b"{}", JSONL[2]], bad_max=1, tally=tally)
    assert caught.value.line == 4
    assert tally.bad == 1


def test_only_the_first_few_are_named() -> None:
    tally = ReadTally()
    assert len(read([JSONL[0], *[b"{}"] * 20, JSONL[1]], bad_max=100, tally=tally)) == 2
    assert (tally.bad, len(tally.bad_named), tally.records) == (20, 8, 2)


def test_a_trace_of_nothing_but_broken_records_has_none() -> None:
    with pytest.raises(TraceError, match="no record"):
        read([AZURE[0], b"x,1,1", b"y,1,1"], bad_max=10)


def test_a_table_whose_header_is_wrong_is_no_trace() -> None:
    with pytest.raises(TraceError):
        read([b"time,isl", b"1,2"], format="csv", bad_max=10)


def test_columns_of_an_azure_trace_leave_them_out_too() -> None:
    tally = ReadTally()
    broken = [*AZURE[:2], b"half", *AZURE[2:]]
    options = ReadOptions(bad_max=1)
    assert len(azure_columns(broken, path="t", options=options, tally=tally).arrived_s) == 3
    assert tally.bad == 1


def test_no_number_below_nothing_is_forgiven() -> None:
    with pytest.raises(ConfigError, match="bad_max"):
        ReadOptions(bad_max=-1)
