"""Public traces: Azure, Mooncake and BurstGPT are read exactly, and their faults by name."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mileage.core.errors import TraceError
from mileage.workload.read_options import ReadTally
from mileage.workload.trace_request import TraceRequest
from tests.support.traces import AZURE, BURSTGPT, MOONCAKE, read


def test_an_azure_trace_of_2023() -> None:
    assert read(AZURE) == [
        TraceRequest(arrived_s=0.0, prompt_tokens=374, output_tokens=44),
        TraceRequest(arrived_s=0.3194101, prompt_tokens=396, output_tokens=109),
        TraceRequest(arrived_s=61.81941, prompt_tokens=879, output_tokens=55),
    ]


@pytest.mark.parametrize(
    ("stamp", "arrived_s"),
    [
        pytest.param(b"2024-05-10 00:00:00.009930+00:00", 0.0, id="as in 2024"),
        pytest.param(b"2024-05-10 00:00:01.009930+00:00", 1.0, id="a second later"),
        pytest.param(b"2024-05-11 00:00:00.009930+00:00", 86_400.0, id="a day later"),
        pytest.param(b"2024-05-10 00:00:02+00:00", 1.99007, id="without a fraction"),
        pytest.param(b"2024-05-10T00:00:02.00993Z", 2.0, id="ISO, Zulu"),
        pytest.param(b"2024-05-10 02:00:00.009930+02:00", 0.0, id="another zone"),
        pytest.param(b"2024-05-10 00:00:00.0099300", 0.0, id="100 ns, no zone"),
    ],
)
def test_times_of_an_azure_trace(stamp: bytes, arrived_s: float) -> None:
    first = b"2024-05-10 00:00:00.009930+00:00,1,1"
    assert read([AZURE[0], first, stamp + b",5,6"])[-1].arrived_s == arrived_s


def test_a_trace_whose_header_was_cut_off() -> None:
    assert read(AZURE[1:]) == read(AZURE)


def test_a_mooncake_trace() -> None:
    first, second, third = read(MOONCAKE)
    assert first == TraceRequest(
        arrived_s=0.0,
        prompt_tokens=1025,
        output_tokens=5,
        prefix_blocks=(0, 1, 2),
        block_tokens=512,
    )
    assert (second.arrived_s, second.prefix_blocks) == (0.0, (0, 3))
    assert third.arrived_s == 2.999


def test_a_burstgpt_trace_without_its_failed_requests() -> None:
    tally = ReadTally()
    first, second = read(BURSTGPT, tally=tally)
    assert first == TraceRequest(
        arrived_s=0.0, prompt_tokens=472, output_tokens=18, model="ChatGPT"
    )
    assert (second.arrived_s, second.model) == (113.0, "GPT-4")
    assert (tally.format, tally.records, tally.failed) == ("burstgpt", 3, 1)


def test_failed_requests_are_kept_on_demand() -> None:
    assert [r.output_tokens for r in read(BURSTGPT, keep_failed=True)] == [18, 1, 276]


def test_the_columns_of_burstgpt_v2() -> None:
    lines = [
        b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        b"Log Type",
        b"5.25,abc,1.5,ChatGPT,472,18,490,Conversation log",
        b"6.0,abc,1.5,ChatGPT,472,18,490,Conversation log",
        b"7.0,,,GPT-4,1,1,2,API log",
    ]
    first, second, third = read(lines)
    assert second.arrived_s == 0.75
    assert first.conversation == second.conversation is not None
    assert third.conversation is None


def azure(record: bytes) -> list[bytes]:
    return [AZURE[0], record]


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        pytest.param(
            azure(b"2023-11-16 18:15:46,374"), 2, "has 2 fields", id="azure: a field less"
        ),
        pytest.param(azure(b"yesterday,374,44"), 2, "TIMESTAMP", id="azure: no time"),
        pytest.param(azure(b"2023-11-16 18:15:99.6805900,3,4"), 2, "TIMESTAMP", id="azure: s 99"),
        pytest.param(azure(b"2023-13-16 18:15:46.6805900,3,4"), 2, "TIMESTAMP", id="azure: month"),
        pytest.param(azure(b"2023-02-30 18:15:46.6805900,3,4"), 2, "TIMESTAMP", id="azure: day"),
        pytest.param(azure(b"2023-11-16 18:15:4_.6805900,3,4"), 2, "TIMESTAMP", id="azure: _"),
        pytest.param(azure(b"2023-11-16 18:15:46,,44"), 2, "ContextTokens", id="azure: empty"),
        pytest.param(azure(b"2023-11-16 18:15:46,-3,44"), 2, "ContextTokens", id="azure: below 0"),
        pytest.param(azure(b"2023-11-16 18:15:46,nan,44"), 2, "ContextTokens", id="azure: nan"),
        pytest.param(azure(b"2023-11-16 18:15:46,1_0,44"), 2, "ContextTokens", id="azure: 1_0"),
        pytest.param(azure(b"2023-11-16 18:15:46,3,4.5"), 2, "GeneratedTokens", id="azure: half"),
        pytest.param(
            azure(b"2023-11-16 18:15:46,3," + b"9" * 5000), 2, "GeneratedTokens", id="huge"
        ),
        pytest.param([AZURE[0]], 1, "no record", id="azure: a header only"),
        pytest.param(
            [b'{"timestamp": 0, "input_length": 5'],
            1,
            "is no JSON: Input data was truncated: expected one whole JSON object",
            id="cut off",
        ),
        pytest.param(
            [*MOONCAKE, b'{"timestamp": 1, "input_length": "5", "output_length": 5}'],
            4,
            "input_length: got text, expected a whole number",
            id="mooncake: text",
        ),
        pytest.param(
            [*MOONCAKE, b'{"timestamp": 1, "input_length": 5}'],
            4,
            "output_length",
            id="mooncake: a key less",
        ),
        pytest.param(
            [b'{"timestamp": -1, "input_length": 5, "output_length": 5}'],
            1,
            "timestamp",
            id="mooncake: before the start",
        ),
        pytest.param(
            [b'{"timestamp": 1, "input_length": -5, "output_length": 5}'],
            1,
            "input_length",
            id="mooncake: below 0",
        ),
        pytest.param(
            [b'{"timestamp": 1, "input_length": 512, "output_length": 5, "hash_ids": [1, 2]}'],
            1,
            "hash_ids: got 2, expected at most 1",
            id="mooncake: a block too many",
        ),
        pytest.param(
            [
                b'{"timestamp":1,"input_length":512,"output_length":5,"hash_ids":[18446744073709551615]}'
            ],
            1,
            "hash_ids",
            id="mooncake: 64 bits and no sign",
        ),
        pytest.param(
            [BURSTGPT[0], b"soon,ChatGPT,4,18,22,x"], 2, "Timestamp", id="burstgpt: no time"
        ),
        pytest.param(
            [BURSTGPT[0], b"inf,ChatGPT,4,18,22,x"], 2, "Timestamp", id="burstgpt: infinity"
        ),
        pytest.param(
            [BURSTGPT[0], b"1,ChatGPT,-4,18,22,x"], 2, "Request tokens", id="burstgpt: below 0"
        ),
        pytest.param([BURSTGPT[0], b"1,ChatGPT,4"], 2, "has 3 fields", id="burstgpt: too few"),
        pytest.param([], 1, "is empty", id="nothing"),
        pytest.param([b"", b"  "], 1, "is empty", id="only empty lines"),
        pytest.param([b"hello"], 1, "no known trace", id="something else"),
        pytest.param([b"\xff\xfe,\x00"], 1, "no known trace", id="no text"),
    ],
)
def test_a_fault_is_told_by_file_line_and_field(
    lines: list[bytes], line: int, message: str
) -> None:
    with pytest.raises(TraceError) as caught:
        read(lines)
    assert (caught.value.path, caught.value.line) == ("t", line)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("name", "requests", "last_s", "prompt", "output", "unique"),
    [
        ("azure_conv_2023.csv.gz", 19_366, 3501.721937, 22_361_870, 4_088_665, 0),
        ("mooncake_conversation.jsonl.gz", 12_031, 3536.999, 144_793_823, 4_122_048, 182_790),
    ],
)
def test_whole_recorded_traces(
    data_dir: Path, name: str, requests: int, last_s: float, prompt: int, output: int, unique: int
) -> None:
    with gzip.open(data_dir / "traces" / name) as file:
        found = read(list(file))
    assert len(found) == requests
    assert found[0].arrived_s == 0.0
    assert found[-1].arrived_s == last_s
    assert sum(r.prompt_tokens for r in found) == prompt
    assert sum(r.output_tokens for r in found) == output
    assert len({b for r in found for b in r.prefix_blocks}) == unique
