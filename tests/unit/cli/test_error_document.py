"""Errors with --json: one document on standard output, with what is known of the error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mileage.cli.error_document import error_document, wants_json
from mileage.cli.main import main
from mileage.core.errors import (
    ConfigError,
    EngineError,
    FileError,
    LedgerError,
    MileageError,
    TraceError,
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            ConfigError("a.b", 3, "less", place="m.toml:4"),
            {"kind": "config", "key": "a.b", "expected": "less", "place": "m.toml:4"},
            id="a key",
        ),
        pytest.param(
            TraceError("t.csv", 7, "broken"),
            {"kind": "trace", "path": "t.csv", "line": 7},
            id="a line of a trace",
        ),
        pytest.param(
            TraceError("t.csv", 0, "empty"),
            {"kind": "trace", "path": "t.csv", "line": None},
            id="a trace as a whole",
        ),
        pytest.param(
            EngineError("http://h", "is down"),
            {"kind": "engine", "engine": "http://h"},
            id="engine",
        ),
        pytest.param(FileError("f", "full"), {"kind": "file", "path": "f"}, id="a file"),
        pytest.param(LedgerError("l", "locked"), {"kind": "ledger", "path": "l"}, id="a ledger"),
        pytest.param(MileageError("no"), {"kind": "failure"}, id="another"),
    ],
)
def test_a_document_tells_what_the_error_knows(
    error: MileageError, expected: dict[str, Any]
) -> None:
    text = error_document(error, 2)
    assert "\n" not in text
    assert json.loads(text) == {"error": {"message": str(error), "exit_code": 2, **expected}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["bench", "--json"], True, id="asked for"),
        pytest.param(["trace", "describe"], False, id="not asked for"),
        pytest.param(["trace", "describe", "--", "--json"], False, id="a file of that name"),
    ],
)
def test_who_wants_a_document(arguments: list[str], expected: bool) -> None:
    assert wants_json(arguments) is expected


def told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["mileage", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        pytest.param(["bench", "ftp://h"], "config", "URL", id="a value of an argument"),
        pytest.param(["bench"], "config", "URL", id="an argument that is missing, bench"),
        pytest.param(["bench", "sweep"], "config", "URL", id="sweep"),
        pytest.param(["bench", "scale"], "config", "URL", id="scale"),
        pytest.param(["simulate"], "config", "--trace", id="simulate"),
        pytest.param(["bench", "diff"], "usage", "Missing argument", id="missing, by the parser"),
        pytest.param(["bench", "http://h", "--nonsense"], "usage", "--nonsense", id="no option"),
        pytest.param(
            ["bench", "http://h", "--seed", "x"], "usage", "'--seed'", id="no number, by the parser"
        ),
        pytest.param(["nonsense"], "usage", "nonsense", id="no such command"),
        pytest.param(["serve", "--config", "/nowhere.toml"], "config", "--config", id="serve"),
        pytest.param(
            ["simulate", "cache", "--trace", "/nowhere", "--size", "1%"],
            None,
            "/nowhere",
            id="cache",
        ),
        pytest.param(["keys", "create", "no spaces"], "config", "tenant", id="keys"),
        pytest.param(["trace", "describe", "/nowhere"], None, "/nowhere", id="trace"),
    ],
)
def test_usage_errors_are_documents_with_json_and_nothing_without(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    kind: str | None,
    says: str,
) -> None:
    code, out, err = told(monkeypatch, capsys, *arguments, "--json")
    assert code == 2, err
    assert out.count("\n") == 1
    error = json.loads(out)["error"]
    assert error["exit_code"] == 2
    assert kind is None or error["kind"] == kind
    assert says in error["message"]
    assert error["message"].splitlines()[0] in err
    code, out, _ = told(monkeypatch, capsys, *arguments)
    assert code == 2
    assert not out.startswith("{")


def test_an_error_behind_its_document_adds_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    with path.open("w", encoding="utf-8") as out, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "argv", ["mileage", "keys", "list", "--json"])
        patched.setattr("mileage.cli.main.command_line", lambda _: late_failure)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 1
    assert path.read_text() == '{"keys":[]}\n'


def late_failure(*, standalone_mode: bool) -> None:
    print('{"keys":[]}')
    raise FileError("report.html", "cannot be written")
