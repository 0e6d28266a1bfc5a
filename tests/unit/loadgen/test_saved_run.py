"""Saved runs: one file, read back as it was; every fault of it named by file and line."""

from __future__ import annotations

import gzip
import io
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mileage.core.errors import TraceError
from mileage.loadgen.run_meta import RunMeta, SavedTarget
from mileage.loadgen.saved_run import SavedRun, read_run, write_run
from mileage.measure.call_record import CallRecord

META = RunMeta(
    mileage_version="1.0",
    started_at_utc="2026-11-30T04:00:00Z",
    start_s=5.0,
    end_s=35.0,
    elapsed_s=36.5,
    command=("mileage", "bench", "http://h:1"),
    targets=(SavedTarget(name="a", url="http://h:1"),),
    figures={"requests": 2, "ttft_s": {"p50": 0.1}, "goodput_rps": None},
)


def record(**fields: Any) -> CallRecord:
    usual: dict[str, Any] = {"index": 0, "phase": "measured", "outcome": "ok", "scheduled_s": 0.1}
    return CallRecord(**{**usual, **fields})


RECORDS = [
    record(
        token_times_s=array("d", [0.3, 0.35, 0.45]),
        token_events=array("I", [1, 1, 1]),
        sent_s=0.1001,
        ended_s=0.46,
        prompt_tokens=9,
        planned_output_tokens=3,
    ),
    record(index=1, outcome="cut", error="the stream ended", tenant="Zoë \n", status=200),
    record(
        index=2, token_times_s=array("d", [0.9]), token_events=array("I", [4]), arm="b", block=7
    ),
]


def saved(records: list[CallRecord]) -> bytes:
    file = io.BytesIO()
    write_run(file, SavedRun(meta=META, records=records))
    return file.getvalue()


def opened(tmp_path: Path, data: bytes) -> SavedRun:
    path = tmp_path / "a.mlrun"
    path.write_bytes(data)
    return read_run(path)


def test_a_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = opened(tmp_path, saved(RECORDS))
    assert run.meta == META
    assert run.records == RECORDS


def test_a_run_without_requests_is_one(tmp_path: Path) -> None:
    assert opened(tmp_path, saved([])).records == []


def test_equal_runs_are_equal_files() -> None:
    assert saved(RECORDS) == saved(RECORDS)


def test_every_field_of_a_record_is_kept() -> None:
    lines = gzip.decompress(saved([record(**ODD)]))
    written = msgspec.json.decode(lines.split(b"\n")[1])
    names = {"token_times_s": "token_times_ns"}
    kept = {names.get(name, name) for name in CallRecord.__struct_fields__}
    assert set(written) == kept


ODD: dict[str, Any] = {
    "index": 1,
    "phase": "warmup",
    "outcome": "timeout",
    "scheduled_s": 1.5,
    "target": 2,
    "arm": "a",
    "block": 3,
    "taken_s": 1.6,
    "connected_s": 1.7,
    "sent_s": 1.8,
    "answered_s": 1.9,
    "ended_s": 2.0,
    "token_times_s": array("d", [1.95]),
    "token_events": array("I", [2]),
    "endpoint": "completions",
    "stream": False,
    "tenant": "t",
    "model": "m",
    "adapter": "l",
    "status": 200,
    "error": "e",
    "attempts": 2,
    "planned_prompt_tokens": 5,
    "planned_output_tokens": 6,
    "prompt_tokens": 7,
    "cached_tokens": 8,
    "output_tokens": 9,
    "request_id": "r",
}


def packed(*lines: bytes) -> bytes:
    return gzip.compress(b"".join(line + b"\n" for line in lines))


HEAD, *_REST = gzip.decompress(saved(RECORDS)).split(b"\n")
FIRST, SECOND, THIRD, END = _REST[:4]


@pytest.mark.parametrize(
    ("data", "line", "told"),
    [
        pytest.param(b"", 0, "no saved run", id="an empty file"),
        pytest.param(b"{}\n", 0, "no saved run", id="not packed"),
        pytest.param(packed(b"hello"), 1, "no saved run", id="another packed file"),
        pytest.param(packed(b'{"mileage_run":9,"meta":{}}'), 1, "version 9", id="a later version"),
        pytest.param(packed(b'{"mileage_run":1,"meta":{}}'), 1, "damaged", id="no meta"),
        pytest.param(packed(HEAD), 2, "cut off", id="nothing after the head"),
        pytest.param(packed(HEAD, FIRST, SECOND), 4, "cut off", id="no end"),
        pytest.param(packed(HEAD, FIRST, SECOND, END), 4, "has 2 requests", id="a line is missing"),
        pytest.param(packed(HEAD, FIRST[:-3]), 2, "damaged", id="half a line"),
        pytest.param(packed(HEAD, b"{}"), 2, "damaged", id="no record"),
        pytest.param(packed(HEAD, b""), 2, "damaged", id="an empty line"),
        pytest.param(
            packed(HEAD, FIRST, SECOND, THIRD, END, FIRST), 6, "follows", id="more after the end"
        ),
        pytest.param(
            packed(HEAD, FIRST.replace(b'"token_times_ns":[', b'"token_times_ns":[1e30,')),
            2,
            "damaged",
            id="no whole nanoseconds",
        ),
        pytest.param(
            packed(HEAD, THIRD.replace(b'"token_events":[4]', b'"token_events":[4,4]')),
            2,
            "1 moments, 2 counts",
            id="more counts than moments",
        ),
        pytest.param(
            packed(HEAD, THIRD.replace(b'"token_events":[4]', b'"token_events":[-4]')),
            2,
            "too large",
            id="a count below 0",
        ),
        pytest.param(saved(RECORDS)[:-20], 4, "cut off", id="cut off while it was written"),
        pytest.param(saved(RECORDS)[:3], 1, "cut off", id="almost nothing"),
        pytest.param(saved(RECORDS)[:-6] + b"\0" * 6, 6, "damaged", id="a wrong checksum"),
    ],
)
def test_a_damaged_file_is_told_by_its_line(
    tmp_path: Path, data: bytes, line: int, told: str
) -> None:
    with pytest.raises(TraceError, match=told) as caught:
        opened(tmp_path, data)
    assert caught.value.line == line
    assert caught.value.path == str(tmp_path / "a.mlrun")


@pytest.mark.parametrize("place", [lambda p: p / "absent.mlrun", lambda p: p])
def test_what_cannot_be_opened_is_told(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_run(place(tmp_path))
