"""Rows of a run: each request as CSV and as Parquet, with the figures of its latency."""

from __future__ import annotations

import csv
import io
import sys
from array import array
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.loadgen import run_rows
from mileage.loadgen.host_facts import host_facts
from mileage.loadgen.run_rows import COLUMNS, csv_rows, write_parquet
from mileage.measure.call_record import CallRecord


def record(**fields: Any) -> CallRecord:
    usual: dict[str, Any] = {"index": 0, "phase": "measured", "outcome": "ok", "scheduled_s": 1.0}
    return CallRecord(**{**usual, **fields})


STREAM = record(
    taken_s=1.25,
    sent_s=1.5,
    ended_s=4.0,
    token_times_s=array("d", [2.0, 2.5, 3.5]),
    token_events=array("I", [1, 1, 1]),
    output_tokens=3,
    tenant='a "quoted", tenant',
)
FAILED = record(index=1, outcome="connect", error="refused\nby all", phase="warmup")
WHOLE = record(index=2, stream=False, ended_s=3.0, output_tokens=7, status=200)


def rows(*records: CallRecord) -> list[dict[str, str]]:
    text = b"".join(csv_rows(records)).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_stream_has_all_of_its_figures() -> None:
    (row,) = rows(STREAM)
    assert tuple(row) == COLUMNS
    assert row["tenant"] == 'a "quoted", tenant'
    seen = {name: float(row[name]) for name in ("lag_s", "ttft_s", "tpot_s", "e2e_s")}
    assert seen == {"lag_s": 0.25, "ttft_s": 1.0, "tpot_s": 0.75, "e2e_s": 2.5}
    assert (row["itl_mean_s"], row["itl_p99_s"], row["token_events"]) == ("0.75", "1.0", "3")


def test_a_failure_has_none_and_its_cells_are_empty() -> None:
    (row,) = rows(FAILED)
    assert (row["outcome"], row["error"], row["phase"]) == ("connect", "refused\nby all", "warmup")
    assert {row[name] for name in ("ttft_s", "tpot_s", "e2e_s", "lag_s", "status")} == {""}


def test_an_answer_without_a_stream_has_only_its_end() -> None:
    (row,) = rows(WHOLE)
    assert (row["ttft_s"], row["e2e_s"], row["token_events"], row["stream"]) == (
        "",
        "2.0",
        "",
        "False",
    )


def test_a_run_without_requests_has_a_header() -> None:
    assert b"".join(csv_rows([])).decode().split("\r\n") == [",".join(COLUMNS), ""]


def test_rows_are_made_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(STREAM, FAILED, WHOLE)
    monkeypatch.setattr(run_rows, "_CHUNK", 2)
    assert rows(STREAM, FAILED, WHOLE) == whole
    assert len(list(csv_rows([STREAM, FAILED, WHOLE]))) == 3


def test_parquet_has_the_same_rows_and_the_times_of_tokens() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    file = io.BytesIO()
    write_parquet(file, [STREAM, FAILED, WHOLE])
    file.seek(0)
    first, second, third = parquet.read_table(file).to_pylist()
    assert tuple(first) == (*COLUMNS, "token_times_s")
    assert first["token_times_s"] == [2.0, 2.5, 3.5]
    assert (first["ttft_s"], first["stream"], first["index"]) == (1.0, True, 0)
    assert second["ttft_s"] is None
    assert (third["e2e_s"], third["token_times_s"]) == (2.0, [])


def test_parquet_without_pyarrow_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"--parquet.*mileage\[parquet\]"):
        write_parquet(io.BytesIO(), [STREAM], key="--parquet")


def test_facts_of_the_host_have_no_name_and_no_address() -> None:
    facts = host_facts()
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 0
    assert not {"host", "hostname", "node", "address"} & set(facts)
