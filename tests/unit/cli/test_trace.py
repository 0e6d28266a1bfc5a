"""mileage trace: what is told, what is written, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from mileage.cli.trace_source import open_trace
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, LedgerError, MileageError, TraceError
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from mileage.workload.read_options import ReadOptions
from mileage.workload.transforms import TraceView
from tests.support.ledger_records import store_ends, timeline
from tests.support.traces import AZURE, BURSTGPT, CLIENT_DATASET, CLIENT_TRACE, MOONCAKE


def run(*arguments: str | Path, code: int = 0, stdin: bytes | None = None) -> Any:
    result = CliRunner().invoke(app, ["trace", *map(str, arguments)], input=stdin)
    assert result.exit_code == code, result.output
    return result


def document(*arguments: str | Path, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


@pytest.fixture
def azure(tmp_path: Path) -> Path:
    path = tmp_path / "azure.csv"
    path.write_bytes(b"\n".join(AZURE))
    return path


@pytest.fixture
def mooncake(tmp_path: Path) -> Path:
    path = tmp_path / "mooncake.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(MOONCAKE)))
    return path


@pytest.mark.parametrize("command", ["describe", "convert", "fetch"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    assert f"Example: mileage trace {command}" in run(command, "--help").output


def test_a_trace_is_described(mooncake: Path) -> None:
    told = document("describe", mooncake)
    assert told["format"] == "mooncake"
    assert (told["requests"], told["duration_s"]) == (3, 2.999)
    assert told["rate_rps"] == pytest.approx(2 / 2.999)
    assert told["prompt_tokens"]["p50"] == 600
    assert told["prompt_tokens"]["total"] == 2137
    assert told["prefixes"]["unique_blocks"] == 4
    assert told["prefixes"]["reuse_ratio"] == pytest.approx(1 / 3)
    assert told["same_moment_ratio"] == pytest.approx(1 / 3)
    assert sum(rate * told["bin_s"] for rate in told["rates_rps"]) == pytest.approx(3)


def test_people_see_the_same(mooncake: Path, azure: Path) -> None:
    shown = run("describe", mooncake).output
    assert "33.3% of 6 blocks seen before (4 different ones)" in shown
    assert "mooncake" in shown
    assert "azure" in run("describe", azure).output


def test_a_part_is_described(azure: Path) -> None:
    told = document("describe", azure, "--window", "0s:1m", "--rate-scale", "2")
    assert (told["requests"], told["duration_s"]) == (2, pytest.approx(0.15970505))


def test_synthetic_workloads_are_traces() -> None:
    told = document("describe", "synthetic:rate=20,requests=500,tenants=3,seed=2")
    assert (told["format"], told["requests"], told["records"]) == ("synthetic", 500, None)
    assert told["tenants"]["count"] == 3


def test_a_file_of_a_synthetic_workload(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text('rate_rps = 5.0\nrequests = 7\n[prompt]\nkind = "fixed"\ntokens = 9\n')
    with open_trace(f"synthetic:{path}") as trace:
        assert [r.prompt_tokens for r in trace] == [9] * 7
    path.write_text("rate_rps = ")
    with pytest.raises(ConfigError, match="TOML"):
        open_trace(f"synthetic:{path}")


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.jsonl.gz", "out.csv.gz"])
def test_a_trace_is_converted_without_loss(tmp_path: Path, mooncake: Path, name: str) -> None:
    out = tmp_path / name
    told = document("convert", mooncake, out)
    assert (told["requests"], told["duration_s"]) == (3, 2.999)
    with open_trace(str(mooncake)) as before, open_trace(str(out)) as after:
        assert list(before) == list(after)
    first = out.read_bytes()
    run("convert", mooncake, out)
    assert out.read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([mooncake.name, name])


def test_traces_are_mixed(tmp_path: Path, mooncake: Path, azure: Path) -> None:
    out = tmp_path / "out.jsonl"
    run("convert", azure, out, "--mix", mooncake, "--head", "4")
    with open_trace(str(out)) as trace:
        assert [r.prompt_tokens for r in trace] == [374, 1025, 600, 396]


def test_a_trace_goes_through_pipes(azure: Path) -> None:
    first = run("convert", azure, "-").stdout_bytes
    assert first.count(b"\n") == 3
    again = run("convert", "-", "-", stdin=first).stdout_bytes
    assert again == first


def test_a_failed_conversion_leaves_nothing_behind(tmp_path: Path, azure: Path) -> None:
    azure.write_bytes(azure.read_bytes() + b"\nbroken\n")
    out = tmp_path / "out.jsonl"
    out.write_text("what was there")
    result = run("convert", azure, out, code=1)
    assert isinstance(result.exception, TraceError)
    assert out.read_text() == "what was there"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_ledger_is_a_trace(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / DATABASE_NAME)
    store_ends(store, [timeline(n, prompt_tokens=10 + n, output_tokens=5) for n in range(3)])
    store.close()
    for spec in (tmp_path, tmp_path / DATABASE_NAME):
        with open_trace(str(spec)) as trace:
            found = list(trace)
        assert [r.prompt_tokens for r in found] == [10, 11, 12]
        assert [r.arrived_s for r in found] == [0.0, 0.001, 0.002]
        assert trace.tally.format == "ledger"


def test_servegen_clients_are_a_trace(tmp_path: Path) -> None:
    for number in (3, 12):
        (tmp_path / f"chunk-{number}-trace.csv").write_bytes(CLIENT_TRACE)
        (tmp_path / f"chunk-{number}-dataset.json").write_text(json.dumps(CLIENT_DATASET))
    part = TraceView(start_s=100.0, duration_s=50.0, rate_scale=2.0)
    with open_trace(str(tmp_path), options=ReadOptions(seed=1), part=part) as trace:
        found = list(trace)
    assert {r.tenant for r in found} == {"client-3", "client-12"}
    assert found[0].arrived_s > 0.0
    assert found[-1].arrived_s < 25.0
    assert len(found) == pytest.approx(200, abs=60)
    (tmp_path / "chunk-12-dataset.json").unlink()
    with pytest.raises(TraceError, match="chunk-12-dataset"):
        open_trace(str(tmp_path))


def test_a_reader_that_stops_early_leaves_no_file_open(azure: Path) -> None:
    def is_open() -> bool:
        return str(azure) in {file.path for file in psutil.Process().open_files()}

    with open_trace(str(azure), options=ReadOptions(reorder_places=1)) as trace:
        next(iter(trace))
        assert is_open()
    assert not is_open()


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        pytest.param(["describe", "nowhere"], ConfigError, "trace: got 'nowhere'", id="no file"),
        pytest.param(
            ["describe", "azure.csv", "--window", "5"], ConfigError, "--window", id="window"
        ),
        pytest.param(
            ["describe", "azure.csv", "--rate-scale", "0"], ConfigError, "--rate-scale", id="rate"
        ),
        pytest.param(
            ["describe", "azure.csv", "--spread", "x"], ConfigError, "--spread", id="spread"
        ),
        pytest.param(
            ["describe", "azure.csv", "--format", "x"], ConfigError, "--format", id="format"
        ),
        pytest.param(
            ["describe", "azure.csv", "--columns", "x"], ConfigError, "--columns", id="columns"
        ),
        pytest.param(
            ["describe", "azure.csv", "--format", "mooncake"], TraceError, "azure.csv:1", id="other"
        ),
        pytest.param(["describe", "synthetic:rate=5"], ConfigError, "duration", id="synthetic"),
        pytest.param(["describe", "text.zst"], TraceError, "zstd", id="zstd"),
        pytest.param(["describe", "cut.gz"], TraceError, "damaged", id="a cut archive"),
        pytest.param(["describe", "empty"], TraceError, "is empty", id="an empty file"),
        pytest.param(["describe", "other.db"], TraceError, "database", id="another database"),
        pytest.param(["describe", "."], TraceError, "has no trace", id="a directory of others"),
        pytest.param(["convert", "azure.csv", "out.txt"], ConfigError, "OUT", id="no known name"),
        pytest.param(
            ["convert", "azure.csv", "out", "--to", "x"], ConfigError, "--to", id="no known format"
        ),
        pytest.param(["convert", "azure.csv", "-", "--json"], ConfigError, "--json", id="stdout"),
        pytest.param(
            ["convert", "azure.csv", "no/out.csv"], ConfigError, "OUT: got 'no/out.csv'", id="place"
        ),
        pytest.param(["fetch", "azure"], ConfigError, "azure-conv-2023", id="no known data set"),
        pytest.param(
            ["fetch", "--url", "http://a"], ConfigError, "--url", id="a place for nothing"
        ),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str],
    kind: type[MileageError],
    message: str,
    azure: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(azure.parent)
    Path("text.zst").write_bytes(b"\x28\xb5\x2f\xfd1234")
    Path("cut.gz").write_bytes(gzip.compress(b"\n".join(AZURE) * 100)[:-9])
    Path("empty").write_bytes(b"")
    Path("other.db").write_bytes(b"SQLite format 3\0 and more")
    result = run(*arguments, code=1)
    assert isinstance(result.exception, kind)
    assert message in str(result.exception)


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(b"SQLite format 3\0" + bytes(200))
    with pytest.raises(LedgerError), open_trace(str(tmp_path)) as trace:
        list(trace)


def test_nothing_left_is_not_enough_evidence(azure: Path) -> None:
    assert document("describe", azure, "--tenant", "nobody", code=3)["requests"] == 0


def test_failed_requests_are_told(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_bytes(b"\n".join(BURSTGPT))
    assert "1 that generated nothing" in run("describe", path).output
    assert document("describe", path, "--keep-failed")["requests"] == 3


def test_data_sets_are_listed(tmp_path: Path) -> None:
    rows = document("fetch", "--directory", tmp_path)
    assert {"azure-conv-2023", "mooncake-toolagent", "burstgpt"} <= {row["name"] for row in rows}
    assert not any(row["fetched"] for row in rows)
    assert "CC-BY-4.0" in run("fetch", "--directory", tmp_path).output
