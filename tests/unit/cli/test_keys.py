"""`mileage keys`: keys are made, listed and revoked in a configuration file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.config import load_config
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError
from mileage.gateway.keys import key_hash

ONE, TWO = key_hash("mlg-one"), key_hash("mlg-two")
TEXT = f"""
[tenants.team-a]
key_hashes = ["{ONE}"]
requests_per_min = 600
concurrency_max = 8
priority = "high"
budgets = [{{ amount = 5, unit = "tokens", per = "day" }}]

[tenants.team-b]
key_hashes = ["{TWO}"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "mileage.toml"
    made.write_text(TEXT)
    return made


def run(path: Path, command: str, *arguments: str, typed: str | None = None) -> Any:
    return CliRunner().invoke(
        app, ["keys", command, *arguments, "--config", str(path)], input=typed
    )


def hashes(path: Path) -> dict[str, str]:
    return load_config(path, {}, {}).key_hashes


def refusal(result: Any) -> ConfigError:
    assert isinstance(result.exception, ConfigError), result.output
    return result.exception


def test_a_key_has_a_name_until_it_is_revoked(path: Path) -> None:
    made = json.loads(run(path, "create", "team-c", "--name", "ci", "--json").output)
    digest = made["key_hash"]
    assert made["name"] == "ci"
    assert load_config(path, {}, {}).key_names == {digest: "ci"}
    assert f'"ci={digest}"' in path.read_text()
    assert f"{digest[:19]} ci " in run(path, "list").output
    rows = json.loads(run(path, "list", "--json").output)["tenants"]
    assert [row["key_names"] for row in rows if row["tenant"] == "team-c"] == [["ci"]]
    run(path, "revoke", digest[7:19])
    assert digest not in path.read_text()


def test_a_key_that_is_made_is_in_the_file(path: Path) -> None:
    output = run(path, "create", "team-c").output
    key = output.split("shown only now):")[1].split()[0]
    assert hashes(path)[key_hash(key)] == "team-c"
    assert key not in path.read_text()
    assert str(path) in output
    assert "first key" not in output


def test_the_first_key_is_told_to_lock_the_others_out(path: Path) -> None:
    path.write_text("# empty\n")
    assert "every request needs one" in run(path, "create", "team-c").output


def test_creating_as_json_names_the_file(path: Path) -> None:
    made = json.loads(run(path, "create", "team-a", "--json").output)
    assert made["config"] == str(path)
    assert hashes(path)[made["key_hash"]] == "team-a"


def test_a_name_that_is_none_changes_nothing(path: Path) -> None:
    assert refusal(run(path, "create", "a b")).key == "tenant"
    assert path.read_text() == TEXT


def test_the_list_shows_hashes_in_part_and_what_tenants_may_use(path: Path) -> None:
    output = run(path, "list").output
    assert ONE[:19] in output
    assert ONE[:20] not in output
    for text in ("team-a", "team-b", "600 requests/min", "8 at once", "5 tokens per day", "high"):
        assert text in output


def test_the_list_as_json(path: Path) -> None:
    found = json.loads(run(path, "list", "--json").output)
    assert found["config"] == str(path)
    first, second = found["tenants"]
    assert first["tenant"] == "team-a"
    assert first["keys"] == [ONE[:19]]
    assert first["budgets"] == [{"amount": 5.0, "unit": "tokens", "per": "day"}]
    assert (second["requests_per_min"], second["budgets"]) == (None, [])


def test_no_tenants(path: Path) -> None:
    path.write_text("")
    assert run(path, "list").output == "no tenants\n"
    assert json.loads(run(path, "list", "--json").output)["tenants"] == []


@pytest.mark.parametrize(
    ("prefix", "typed"),
    [
        pytest.param(ONE[7:15], None, id="digits"),
        pytest.param(ONE[:19].upper().replace("SHA", "sha"), None, id="as it is listed"),
        pytest.param(ONE, None, id="the whole hash"),
        pytest.param(None, "mlg-one\n", id="the key on standard input"),
    ],
)
def test_a_key_is_revoked(path: Path, prefix: str | None, typed: str | None) -> None:
    result = run(path, "revoke", *([prefix] if prefix else []), typed=typed)
    assert result.exit_code == 0, result.output
    assert hashes(path) == {TWO: "team-b"}
    assert load_config(path, {}, {}).tenants["team-a"].requests_per_min == 600


@pytest.mark.parametrize(
    ("prefix", "typed", "key"),
    [
        pytest.param(ONE[7:14], None, "hash_prefix", id="too short"),
        pytest.param("0" * 12, None, "hash_prefix", id="nobody's"),
        pytest.param("not hex!", None, "hash_prefix", id="no digits"),
        pytest.param("mlg-one", None, "hash_prefix", id="a key as an argument"),
        pytest.param(None, "mlg-three\n", "key", id="a key that is none"),
        pytest.param(None, "", "key", id="nothing on standard input"),
    ],
)
def test_what_is_no_key_of_the_file_is_refused(
    path: Path, prefix: str | None, typed: str | None, key: str
) -> None:
    error = refusal(run(path, "revoke", *([prefix] if prefix else []), typed=typed))
    assert error.key == key
    assert "mlg-one" not in str(error)
    assert path.read_text() == TEXT


def test_a_prefix_of_two_keys_is_refused(path: Path) -> None:
    path.write_text(f'[tenants.a]\nkey_hashes = ["sha256:{"1" * 64}", "sha256:{"1" * 63}2"]\n')
    assert "not of 2" in str(refusal(run(path, "revoke", "1" * 12)))


def test_the_last_key_needs_a_word_more(path: Path) -> None:
    run(path, "revoke", ONE[7:19])
    assert refusal(run(path, "revoke", TWO[7:19])).key == "key"
    assert hashes(path) == {TWO: "team-b"}
    assert "no request needs one" in run(path, "revoke", TWO[7:19], "--last").output
    assert hashes(path) == {}


def test_revoking_as_json(path: Path) -> None:
    done = json.loads(run(path, "revoke", ONE[7:19], "--json").output)
    assert done == {"tenant": "team-a", "key_hash": ONE, "config": str(path)}
