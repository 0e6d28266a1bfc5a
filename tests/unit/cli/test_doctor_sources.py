"""Where facts come from, together: files, a model repository; and what they contradict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.doctor_dump_engines import read_engines, write_engines
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError
from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.redact import Redactor

CONFIG = """
name: "tensorrt_llm"
backend: "tensorrtllm"
max_batch_size: 64
model_transaction_policy { decoupled: true }
parameters { key: "batch_scheduler_policy" value { string_value: "max_utilization" } }
"""
PAGE = 'vllm:num_requests_running{engine="0",model_name="m"} 4\n'


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def written(path: Path, document: dict[str, Any]) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def repository(directory: Path) -> Path:
    folder = directory / "models" / "tensorrt_llm"
    folder.mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    return directory / "models"


def recorded(directory: Path, facts: dict[str, Any]) -> Path:
    """A directory as `record` makes it, with an engine's pages."""
    written(directory / "facts.json", facts)
    pages = tuple(
        RecordedPage(at_s=at_s, at_utc_s=1.7e9 + at_s, path="/metrics", text=PAGE)
        for at_s in (10.0, 20.0)
    )
    record = EngineRecord(url="http://127.0.0.1:8000", pages=pages, missing={"/info": "none"})
    write_engines(directory, [record], Redactor())
    return directory


def test_a_model_repository_tells_how_triton_is_set(tmp_path: Path) -> None:
    _, out = run("--model-repository", str(repository(tmp_path)), "--json")
    facts = json.loads(out)["facts"]
    assert facts["engine"] == {"name": "triton"}
    assert facts["settings"]["max_num_seqs"] == 64
    assert facts["settings"]["scheduler.policy"] == "max_utilization"
    assert facts["settings"]["triton.decoupled"] is True


def test_a_model_of_its_own_is_a_repository_of_one(tmp_path: Path) -> None:
    folder = repository(tmp_path) / "tensorrt_llm"
    _, out = run("--model-repository", str(folder), "--json")
    assert json.loads(out)["facts"]["settings"]["max_num_seqs"] == 64


@pytest.mark.parametrize("text", [None, "max_batch_size { {"])
def test_a_repository_that_is_none_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.pbtxt").write_text(text)
    with pytest.raises(ConfigError):
        run("--model-repository", str(tmp_path))


def test_sources_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    facts = written(tmp_path / "f.json", {"settings": {"max_num_seqs": 128}})
    options = ("--facts", facts, "--model-repository", str(repository(tmp_path)))
    _, out = run(*options, "--json")
    document = json.loads(out)
    assert document["facts"]["settings"]["max_num_seqs"] == 128
    (conflict,) = document["conflicts"]
    assert conflict == {
        "fact": "settings.max_num_seqs",
        "kept": 128,
        "kept_source": facts,
        "other": 64,
        "other_source": str(tmp_path / "models"),
    }
    _, told = run(*options)
    (line,) = [line for line in told.splitlines() if line.startswith("sources differ")]
    assert "settings.max_num_seqs: 128 by " in line
    assert "64 by " in line


def test_sources_that_agree_are_not_told(tmp_path: Path) -> None:
    facts = written(tmp_path / "f.json", {"settings": {"max_num_seqs": 64}})
    _, out = run("--facts", facts, "--model-repository", str(repository(tmp_path)), "--json")
    assert json.loads(out)["conflicts"] == []


def test_facts_beside_a_dump_are_both_read(tmp_path: Path) -> None:
    facts = written(tmp_path / "f.json", {"workload": {"concurrency": 40}})
    dump = tmp_path / "dump"
    dump.mkdir()
    written(dump / "facts.json", {"settings": {"max_num_seqs": 8}})
    _, out = run("--facts", facts, "--dump", str(dump), "--json")
    document = json.loads(out)["facts"]
    assert document["workload"]["concurrency"] == 40
    assert document["settings"]["max_num_seqs"] == 8


def test_the_pages_of_a_dump_add_what_its_facts_lack(tmp_path: Path) -> None:
    dump = recorded(tmp_path, {"engine": {"name": "vllm"}, "workload": {"kind": "online"}})
    _, out = run("--dump", str(dump), "--json")
    document = json.loads(out)["facts"]
    assert document["workload"]["kind"] == "online"
    assert document["signals"]["requests_running"] == 4


def test_the_facts_of_a_dump_count_before_its_pages(tmp_path: Path) -> None:
    dump = recorded(tmp_path, {"signals": {"requests_running": 7}})
    _, out = run("--dump", str(dump), "--json")
    assert json.loads(out)["facts"]["signals"]["requests_running"] == 7


def test_pages_are_files_that_people_can_read(tmp_path: Path) -> None:
    recorded(tmp_path, {})
    assert (tmp_path / "engine-1" / "page-01.txt").read_text() == PAGE
    (record,) = read_engines(tmp_path)
    assert [page.at_s for page in record.pages] == [10.0, 20.0]
    assert record.missing == {"/info": "none"}


@pytest.mark.parametrize(
    "index", ["{", '{"url": "x", "pages": [{"at_s": 1}]}', '{"url": "x", "pages": 3}']
)
def test_pages_that_are_not_what_was_written_are_named(tmp_path: Path, index: str) -> None:
    dump = recorded(tmp_path, {})
    (dump / "engine-1" / "engine.json").write_text(index)
    with pytest.raises(ConfigError, match=r"engine\.json"):
        run("--dump", str(dump))


def test_a_page_of_another_directory_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("x")
    dump = tmp_path / "dump"
    dump.mkdir()
    recorded(dump, {})
    index = dump / "engine-1" / "engine.json"
    index.write_text(index.read_text().replace("page-01.txt", "../../secret.txt"))
    with pytest.raises(ConfigError, match=r"secret\.txt"):
        run("--dump", str(dump))


def test_a_key_needs_engines_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "k")
    with pytest.raises(ConfigError, match="a URL beside it"):
        run("--dcgm", "http://127.0.0.1:9/metrics", "--api-key-env", "ENGINE_KEY", "--for", "2s")


def test_a_key_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigError, match="--api-key-env"):
        run("http://127.0.0.1:9", "--api-key-env", "NO_SUCH_VARIABLE", "--for", "2s")
