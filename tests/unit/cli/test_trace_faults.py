"""mileage trace on what is no trace, or a broken one: one clear error, by file, line and field."""

from __future__ import annotations

import gzip
import os
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mileage.cli.main import main
from mileage.cli.trace_source import open_trace
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, TraceError
from mileage.workload.read_options import ReadOptions
from mileage.workload.trace_request import TraceRequest
from tests.support.traces import AZURE, AZURE_FILE, MOONCAKE

RECORD = MOONCAKE[0]


def fault_of(spec: str | Path, **options: object) -> str:
    with pytest.raises((TraceError, ConfigError)) as caught:
        read(spec, **options)
    return str(caught.value)


def read(spec: str | Path, **options: object) -> list[TraceRequest]:
    with open_trace(str(spec), options=ReadOptions(**options)) as trace:  # type: ignore[arg-type]
        return list(trace)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"PAR1\x15\x04\x15\x00PAR1", "t: is a Parquet file", id="Parquet"),
        pytest.param(b"PK\x03\x04\x14\x00", "t: is a zip archive", id="zip"),
        pytest.param(b"BZh91AY&SY\xff", "t: is packed with bzip2", id="bzip2"),
        pytest.param(b"\xfd7zXZ\0\0", "t: is packed with xz", id="xz"),
        pytest.param(b"\x28\xb5\x2f\xfd12", "t: is packed with zstd", id="zstd"),
        pytest.param(AZURE_FILE.decode().encode("utf-16"), "t: is text in UTF-16", id="UTF-16"),
        pytest.param(bytes(range(256)), "t: is no text", id="binary"),
        pytest.param(gzip.compress(b"PAR1\0"), "t: is a Parquet file", id="packed Parquet"),
        pytest.param(gzip.compress(AZURE_FILE)[:-9], "t: is damaged: its packed", id="cut gzip"),
        pytest.param(gzip.compress(AZURE_FILE) + b"x" * 20, "t: is damaged", id="more than gzip"),
        pytest.param(b"", "t:1: is empty", id="empty"),
        pytest.param(b"[" + RECORD + b",\n", "t:1: begins a JSON array", id="a JSON array"),
        pytest.param(b'{\n "timestamp": 0\n}', "t:1: is no JSON: Input data", id="a spread object"),
        pytest.param(RECORD + b",\n", "t:1: ends with a comma", id="a comma behind the first"),
        pytest.param(
            RECORD + b"\n" + RECORD + b",\n", "t:2: ends with a comma", id="a comma behind another"
        ),
        pytest.param(
            RECORD + b"\n" + RECORD[:-1] + b",}", "t:2: is no JSON: trailing comma", id="in it"
        ),
        pytest.param(
            RECORD + b'\n{"timestamp": NaN}', "t:2: is no JSON: invalid character", id="NaN"
        ),
        pytest.param(b'{"timestamp":' + b"[" * 99_999, "t:1: is nested too deeply", id="nested"),
        pytest.param(RECORD + b'\n{"timestamp": 0}', "t:2: input_length is missing", id="missing"),
        pytest.param(
            b'{"arrived_s": 0, "prompt_tokens": 1, "output_tokens": 1, "x": 1}',
            "t:1: x: no request has such a field",
            id="an unknown field",
        ),
        pytest.param(
            b"arrived_s,prompt_tokens,output_tokens,stream\n0,1,1,perhaps",
            "t:2: stream: got text, expected true or false",
            id="another type in a table",
        ),
        pytest.param(
            b"time,isl,osl\n0,1," + b"1" * (17 << 20), "t:2: is longer than 16", id="a huge line"
        ),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    assert fault_of(path).startswith(f"{tmp_path}/{message}")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\n".join(AZURE), id="azure"),
        pytest.param(b"\n".join(AZURE[1:]), id="azure without its header"),
        pytest.param(b"\n".join(MOONCAKE), id="mooncake"),
        pytest.param(b"time,isl,osl\n0,1,1\n0,2,2\n1,3,3\n", id="csv"),
        pytest.param(b'{"arrived_s":0,"prompt_tokens":1,"output_tokens":1}\n' * 3, id="our own"),
    ],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a byte order mark"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_byte_order_marks_and_ends_of_lines_do_not_matter(
    tmp_path: Path, content: bytes, mark: bytes, end: bytes
) -> None:
    path = tmp_path / "t"
    path.write_bytes(mark + content.replace(b"\r", b"").replace(b"\n", end))
    assert len(read(path)) == 3


def test_a_broken_trace_is_an_error_of_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"time,isl,osl\n0,1,x\n")
    monkeypatch.setattr(sys, "argv", ["mileage", "trace", "describe", str(path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1] == (
        f"mileage: {path}:2: osl: got 'x', expected a whole number, 0..999999999"
    )


def test_names_that_are_near_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEAGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calls.csv").write_bytes(AZURE_FILE)
    assert "; near: azure-conv-2024, azure-conv-2023" in fault_of("azure-conv-2032")
    assert "; near: calls.csv" in fault_of("call.csv")
    assert f"; near: {tmp_path}/calls.csv" in fault_of(tmp_path / "cals.csv")
    assert "near" not in fault_of("something-else-altogether")
    assert fault_of("").startswith("trace: got ''")
    assert "`mileage trace fetch azure-conv-2023` brings it" in fault_of("azure-conv-2023")
    result = CliRunner().invoke(app, ["trace", "fetch", "azure-conv-2032"])
    assert str(result.exception).endswith(
        "expected one of azure-conv-2024, azure-conv-2023, azure-code-2024"
    )


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    assert "File name too long" in fault_of("x" * 300)
    (tmp_path / "file").write_bytes(b"")
    assert "expected a file, a directory" in fault_of(tmp_path / "file" / "t.csv")


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        pytest.param(
            "azure.csv",
            {"columns": {"tenant": "x"}},
            "got 'tenant=x', .* read as azure",
            id="columns",
        ),
        pytest.param("azure.csv", {"time_unit": "ms"}, "--time-unit: .* read as azure", id="unit"),
        pytest.param(
            "azure.csv",
            {"format": "azure", "columns": {"tenant": "x"}},
            "--columns: .* as was asked for",
            id="columns of what was asked for",
        ),
        pytest.param(
            "synthetic:rate=1,requests=1", {"format": "csv"}, "--format: .* synthetic", id="format"
        ),
        pytest.param(
            "synthetic:rate=1,requests=1", {"spread": "even"}, "--spread: .* synthetic", id="spread"
        ),
        pytest.param(
            "clients", {"columns": {"tenant": "x"}}, "--columns: .* ServeGen", id="client"
        ),
        pytest.param("ledger", {"format": "mooncake"}, "--format: .* a ledger", id="ledger"),
        pytest.param("table.csv", {"columns": {"x": "y"}}, "--columns: got 'x'", id="no field"),
        pytest.param(
            "table.csv", {"columns": {"tenant": "y"}}, "--columns tenant: got 'y'", id="no column"
        ),
    ],
)
def test_options_that_do_not_apply_are_not_ignored(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spec: str,
    options: dict[str, object],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("azure.csv").write_bytes(AZURE_FILE)
    Path("table.csv").write_bytes(b"time,isl,osl\n0,1,1\n")
    Path("clients").mkdir()
    Path("clients/chunk-1-trace.csv").write_bytes(b"")
    Path("ledger").mkdir()
    Path("ledger/ledger.sqlite").write_bytes(b"")
    with pytest.raises(ConfigError, match=message):
        read(spec, **options)


def test_azure_is_read_as_a_table_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_bytes(AZURE_FILE)
    columns = {"prompt_tokens": "GeneratedTokens", "output_tokens": "ContextTokens"}
    assert [r.prompt_tokens for r in read(path, format="csv", columns=columns)] == [44, 109, 55]


def test_a_pipe_is_a_trace(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(AZURE_FILE,))
    writer.start()
    with open_trace(str(pipe), progress=lambda *_: None) as trace:
        assert len(list(trace)) == 3
    writer.join()


def test_standard_input_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input to be open" in fault_of("-")


def test_sizes_are_told_in_units_that_fit(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(AZURE_FILE)
    result = CliRunner().invoke(app, ["trace", "describe", str(path)])
    assert f"reading t.csv ({len(AZURE_FILE)} bytes)" in result.stderr
    path.write_bytes(AZURE_FILE + b"\r\n" * 10_000)
    result = CliRunner().invoke(app, ["trace", "describe", str(path)])
    assert "reading t.csv (20.1 kB)" in result.stderr


def test_our_own_table_may_have_any_number_of_blocks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    spec = "synthetic:rate=1,requests=2,prompt=fixed:200000,block-tokens=1,prefixes=1:100000"
    result = CliRunner().invoke(app, ["trace", "convert", spec, str(path)])
    assert result.exit_code == 0, result.output
    assert read(spec) == read(path)
