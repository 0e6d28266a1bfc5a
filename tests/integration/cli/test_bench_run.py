"""mileage bench as a process, against an engine that does what it is told."""

from __future__ import annotations

import csv
import io
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from mileage.loadgen.launched_server import free_port
from mileage.loadgen.saved_run import read_run
from tests.support.bench_cli import QUICK, Told, bench, start_bench
from tests.support.engine import Behaviour, ScriptedEngine

QUANTILES = {"p50", "p90", "p95", "p99", "p999", "max"}


@pytest.fixture(scope="module")
def running() -> Iterator[ScriptedEngine]:
    with ScriptedEngine() as engine:
        yield engine


@pytest.fixture
def engine(running: ScriptedEngine) -> Iterator[ScriptedEngine]:
    while True:  # what the test before has sent may still be on its way
        running.reset()
        time.sleep(0.1)
        if not running.received:
            break
    running.behaviour = Behaviour(tokens=5, first_token_s=0.01, token_s=0.002)
    yield running
    assert running.mistakes == []


def assert_fine(told: Told) -> None:
    """It went well; a machine that is busy with other things may have been the limit."""
    limited = (
        told.document["generator"]["limited"]
        if told.out.startswith("{")
        else "The load generator was the limit" in told.out
    )
    assert told.code == (3 if limited else 0), told.err


@pytest.mark.quiet
def test_the_document_keeps_its_contract_and_is_all_of_standard_output(
    engine: ScriptedEngine,
) -> None:
    told = bench(engine.url, "--model", "toy", *QUICK, "--slo", "ttft=1s,itl=1s", "--json")
    assert_fine(told)
    document = told.document
    assert document["requests_ok"] > 10
    assert document["requests_failed"] == {}
    for latency in ("ttft_s", "itl_s", "tpot_s", "e2e_s"):
        spread = document[latency]
        assert set(spread) >= QUANTILES
        assert 0 < spread["p50"] <= spread["p99"] <= spread["max"] < 1
    assert document["ttft_s"]["p50"] > 0.01
    assert document["output_tokens_per_s"] > 50
    assert document["goodput_rps"] == pytest.approx(document["requests_per_s"])
    assert set(document) >= {"utilisation_ratio", "memory_bytes"}
    generator = document["generator"]
    assert generator["limited"] in (True, False)
    assert 0 <= generator["lag_p99_s"] < 1
    assert 0 < generator["cpu_ratio"] < 1
    # The warm-up was sent and is in no figure.
    assert document["window"]["warmup_requests"] > 0
    sent = document["requests"] + document["window"]["warmup_requests"]
    assert sent == len(engine.received)


def test_every_request_of_a_trace_is_measured_once(engine: ScriptedEngine, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = '{{"arrived_s":{0},"prompt_tokens":{1},"output_tokens":5}}\n'
    trace.write_text("".join(line.format(n / 40, 10 + n) for n in range(40)))
    told = bench(engine.url, "--trace", str(trace), *QUICK[4:], "--no-ignore-eos", "--json")
    assert_fine(told)
    assert told.document["requests_ok"] == 40
    assert told.document["window"]["warmup_requests"] > 0
    texts = [received.json["messages"][-1]["content"] for received in engine.received]
    assert len(set(texts)) == len(texts)  # those of the warm-up warm no cache


def test_failures_are_counted_by_class_and_named(engine: ScriptedEngine) -> None:
    faults = [
        Behaviour(status=429),
        Behaviour(status=500),
        Behaviour(status=404),
        Behaviour(fault="close", fault_at=2),
        Behaviour(fault="reset"),
        Behaviour(fault="half_event", fault_at=1),
    ]
    engine.following.extend(faults)
    told = bench(engine.url, *QUICK, "--warmup", "0s", "--json")
    assert_fine(told)
    document = told.document
    expected = {"rejected": 1, "server_error": 1, "client_error": 1, "cut": 2, "broken": 1}
    assert document["requests_failed"] == expected
    assert document["requests_ok"] + 6 == document["requests"]
    assert {each["class"] for each in document["errors"]} == set(expected)
    assert all(each["error"] for each in document["errors"])


def test_where_no_request_is_answered_the_exit_code_says_so(engine: ScriptedEngine) -> None:
    engine.behaviour = Behaviour(status=500, message="out of order")
    told = bench(engine.url, *QUICK, "--json")
    assert told.code == 1
    assert told.document["requests_ok"] == 0
    assert told.document["ttft_s"]["p50"] is None
    assert "No request was answered well" in told.err
    assert "out of order" in told.document["errors"][0]["error"]


def test_an_endpoint_that_is_down_is_told_at_once(engine: ScriptedEngine) -> None:
    url = engine.url
    engine.die()
    told = bench(url, *QUICK, "--duration", "1h", "--json")
    assert told.code == 1
    assert told.document["requests_failed"] == {"connect": 1}
    assert "connection refused" in told.document["error"]
    assert url in told.err
    assert "Traceback" not in told.err


@pytest.mark.quiet
def test_an_endpoint_that_is_stopped_in_the_middle_is_given_up() -> None:
    port = str(free_port())
    server = [sys.executable, "-m", "tests.support.capacity_server", "--port", port]
    with subprocess.Popen([*server, "--service", "0.02"]) as process:
        try:
            with start_bench(
                f"http://127.0.0.1:{port}", *("--concurrency", "2"), *QUICK[4:], "--requests",
                "1000000", "--give-up", "1s", "--warmup", "0s", "--model", "m", "--json",
            ) as told:  # fmt: skip
                until_under_load(process.pid)
                process.send_signal(signal.SIGSTOP)
                out, err = told.communicate(timeout=60)
        finally:
            process.kill()
    assert told.returncode == 1, err
    document = json.loads(out)
    assert document["requests_ok"] > 0
    assert document["requests_failed"] == {"timeout": 2}
    assert "nothing came from the server for 1 s" in document["error"]
    assert "The run ended early" in err


def until_under_load(pid: int) -> None:
    """Until both clients have been connected to the server for a while."""
    deadline_s = time.monotonic() + 60
    while sum(each.status == "ESTABLISHED" for each in psutil.Process(pid).net_connections()) < 2:
        assert time.monotonic() < deadline_s, "nobody came"
        time.sleep(0.05)
    time.sleep(0.5)


def test_a_generator_that_had_nothing_to_do_was_not_the_limit() -> None:
    told = bench("http://127.0.0.1:1", *QUICK, "--json")
    assert told.code == 1
    assert told.document["error"] == "http://127.0.0.1:1: connection refused"
    assert not told.document["generator"]["limited"]


def test_a_wrong_model_is_named_with_those_that_exist(engine: ScriptedEngine) -> None:
    engine.behaviour = Behaviour(status=404, message="no such model")
    told = bench(engine.url, "--model", "tois", *QUICK, "--duration", "1h", "--json")
    assert told.code == 1
    assert told.document["requests_failed"] == {"client_error": 1}
    assert "'tois'" in told.err
    assert "it has toy" in told.err


def test_a_model_that_is_not_listed_but_answers_is_measured(engine: ScriptedEngine) -> None:
    told = bench(engine.url, "--model", "an-alias", *QUICK, "--json")
    assert_fine(told)
    assert told.document["requests_ok"] > 10


@pytest.mark.quiet
def test_a_generator_that_is_late_is_told_by_the_exit_code(engine: ScriptedEngine) -> None:
    # More than one thread can send: the schedule slips, and the result says that it did.
    engine.behaviour = Behaviour(tokens=1)
    told = bench(engine.url, *QUICK, "--rate", "30000", "--drain", "1s", "--no-stream", "--json")
    assert told.code in (1, 3), told.err
    document = told.document
    assert document["generator"]["limited"] is True
    assert document["generator"]["reason"]
    if document["requests_ok"]:
        assert told.code == 3
        assert "The load generator was the limit" in told.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_tells_what_it_saw(
    engine: ScriptedEngine, number: signal.Signals
) -> None:
    with start_bench(engine.url, *QUICK, "--duration", "1h", "--json") as process:
        engine.until(lambda: len(engine.received) > 30, "requests came")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert '"interrupted":true' in out
    assert out.count("\n") == 1
    assert "Interrupted" in err


def test_broken_lines_of_a_trace_are_counted_and_named(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    good = '{"arrived_s":0,"prompt_tokens":3,"output_tokens":3}\n'
    trace.write_text(good * 3 + '{"arrived_s":1,"prompt_tok\n' + good)
    options = ("--trace", str(trace), *QUICK[4:])
    told = bench(engine.url, *options, "--json")
    assert_fine(told)
    assert told.document["requests_ok"] == 4
    workload = told.document["conditions"]["workload"]
    assert workload["bad_records"] == 1
    assert f"{trace}:4" in workload["bad_named"][0]
    engine.received.clear()
    strict = bench(engine.url, *options, "--bad-lines-max", "0", "--json")
    assert strict.code == 2
    assert f"{trace}:4" in strict.err
    error = strict.document["error"]
    assert (error["kind"], error["path"], error["line"]) == ("trace", str(trace), 4)
    assert engine.received == []


def test_keys_reach_the_engine_and_nothing_else(engine: ScriptedEngine, tmp_path: Path) -> None:
    saved = tmp_path / "run.mlrun"
    options = ("--api-key-env", "SECRET_KEY", "--header", "x-team: blue", "--save", str(saved))
    told = bench(engine.url, *QUICK, *options, "--json", environ={"SECRET_KEY": "sk-very-secret"})
    assert_fine(told)
    assert {r.header("authorization") for r in engine.received} == {"Bearer sk-very-secret"}
    assert {r.header("x-team") for r in engine.received} == {"blue"}
    assert "sk-very-secret" not in told.out + told.err
    run = read_run(saved)
    assert "sk-very-secret" not in str(run.meta)
    assert sum(record.phase == "measured" for record in run.records) == told.document["requests"]


@pytest.mark.quiet
def test_a_closed_loop_keeps_to_its_clients(engine: ScriptedEngine) -> None:
    engine.behaviour = Behaviour(tokens=2, first_token_s=0.02)
    told = bench(engine.url, "--concurrency", "3", *QUICK[2:], "--json")
    assert_fine(told)
    document = told.document
    assert document["conditions"]["load"]["mode"] == "closed"
    assert max(document["series"]["in_flight"]) <= 3.001
    assert document["requests_ok"] > 20


def test_people_get_a_table_of_80_columns_and_progress_beside_it(engine: ScriptedEngine) -> None:
    told = bench(engine.url, *QUICK, "--slo", "ttft=1s,itl=1s", environ={"COLUMNS": "80"})
    assert_fine(told)
    table = [line for line in told.out.splitlines() if line.startswith((" ", "TTFT", "E2E"))]
    assert max(len(line.rstrip()) for line in table) <= 80
    for word in ("Endpoint", "TTFT", "p999", "met their targets"):
        assert word in told.out
    assert "\x1b" not in told.out + told.err


def test_a_row_per_request_is_written(engine: ScriptedEngine, tmp_path: Path) -> None:
    files = (tmp_path / "run.csv", tmp_path / "run.parquet")
    told = bench(engine.url, *QUICK, "--csv", str(files[0]), "--parquet", str(files[1]), "--json")
    assert_fine(told)
    as_text = list(csv.DictReader(io.StringIO(files[0].read_text())))
    rows = pq.read_table(files[1]).to_pylist()
    assert [float(row["scheduled_s"]) for row in as_text] == [row["scheduled_s"] for row in rows]
    measured = [row for row in rows if row["phase"] == "measured"]
    assert len(measured) == told.document["requests"]
    assert {row["outcome"] for row in measured} == {"ok"}
    assert max(row["ttft_s"] for row in measured) == pytest.approx(told.document["ttft_s"]["max"])


def test_a_file_that_cannot_be_written_keeps_no_other_from_being_written(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    table = tmp_path / "run.csv"
    told = bench(engine.url, *QUICK, "--save", "/dev/full", "--csv", str(table), "--json")
    assert told.code == 1
    assert "/dev/full: cannot be written" in told.err
    assert told.document["requests"]
    assert table.read_text().count("\n") > told.document["requests"]


@pytest.mark.parametrize("option", ["--metrics-url", "--engine-url", "--dcgm-url"])
def test_a_page_that_could_not_be_asked_is_refused(engine: ScriptedEngine, option: str) -> None:
    told = bench(engine.url, *QUICK, option, "ftp://user:secret@host", "--json")
    assert told.code == 2
    assert told.err.startswith(f"mileage: {option}: got 'ftp://host'")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_it_runs_with_standard_files_that_are_closed(
    engine: ScriptedEngine, tmp_path: Path, closed: str
) -> None:
    saved = tmp_path / "run.csv"
    command = [sys.executable, "-m", "mileage.cli.main", "bench", engine.url, *QUICK]
    line = f"{shlex.join([*command, '--csv', str(saved)])} {closed}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=60, check=False)
    assert done.returncode in (0, 3), done.stderr
    assert saved.read_text().count("\n") > 1
