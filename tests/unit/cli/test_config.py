"""The configuration: flag > environment > file > default, and errors that name the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mileage.cli.config import Config, load_config, state_directory
from mileage.core.errors import ConfigError
from mileage.gateway.keys import key_hash

HASH = key_hash("a")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mileage.toml"
    path.write_text(text, "utf-8")
    return path


def test_without_anything_the_defaults_hold() -> None:
    assert load_config(None, {}, {}) == Config()


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    path = written(tmp_path, "[server]\nport = 1\nworkers = 2\nidle_timeout_s = 3\n")
    environ = {"MILEAGE_SERVER_PORT": "10", "MILEAGE_SERVER_WORKERS": "20"}
    config = load_config(path, {"server.port": 100, "server.host": None}, environ)
    assert config.server.port == 100
    assert config.server.workers == 20
    assert config.server.idle_timeout_s == 3
    assert config.server.host == "127.0.0.1"


def test_the_environment_takes_lists_and_truths() -> None:
    environ = {
        "MILEAGE_SERVER_CORS_ORIGINS": "https://a, https://b",
        "MILEAGE_SERVER_ALLOW_NO_KEYS": "true",
        "MILEAGE_ROUTING_AFFINITY": "0",
        "MILEAGE_EMBEDDED_THREADS": "3",
        "MILEAGE_SOMETHING_ELSE": "is not ours",
    }
    config = load_config(None, {}, environ)
    assert config.server.cors_origins == ("https://a", "https://b")
    assert config.server.allow_no_keys
    assert not config.routing.affinity
    assert config.embedded.threads == 3


def test_aliases_of_flags_are_added_to_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[aliases]\n"gpt-4.1" = "a"\n')
    config = load_config(path, {"aliases": {"gpt-4.1-mini": "b"}}, {})
    assert config.aliases == {"gpt-4.1": "a", "gpt-4.1-mini": "b"}


def test_engines_of_flags_replace_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[[engines]]\nkind = "vllm"\nurl = "http://a:1"\n')
    config = load_config(path, {"engines": [{"kind": "openai", "url": "http://b:2"}]}, {})
    assert [engine.url for engine in config.engines] == ["http://b:2"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        pytest.param("[server]\nprot = 1\n", "server.prot", id="unknown key"),
        pytest.param("[sever]\nport = 1\n", "sever", id="unknown section"),
        pytest.param('[server]\nport = "8080"\n', "server.port", id="wrong type"),
        pytest.param("[server]\nport = 80800\n", "server.port", id="out of range"),
        pytest.param("server = 1\n", "server", id="no table"),
        pytest.param('[[engines]]\nkind = "vlm"\nurl = "http://a"\n', "engines", id="kind"),
        pytest.param('[[engines]]\nkind = "vllm"\nurl = "a:8000"\n', "engines.url", id="url"),
        pytest.param('[[engines]]\nkind = "vllm"\n', "url", id="no url"),
        pytest.param("[breaker]\nopen_s = 0\n", "breaker.open_s", id="zero seconds"),
        pytest.param('[ledger]\non_failure = "maybe"\n', "ledger.on_failure", id="choice"),
        pytest.param('[tenants.a]\nkey_hashes = ["secret"]\n', "key_hashes", id="key in the clear"),
        pytest.param(
            f'[tenants.a]\nkey_hashes = ["{HASH}"]\n[tenants.b]\nkey_hashes = ["{HASH}"]\n',
            "tenants.b.key_hashes",
            id="one key, two tenants",
        ),
        pytest.param('[aliases]\na = "b"\nb = "c"\n', "aliases.a", id="alias of an alias"),
        pytest.param("[server\nport = 1\n", "line 1", id="no TOML"),
    ],
)
def test_a_bad_file_is_refused_by_key(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part.replace(".", r"\.")):
        load_config(written(tmp_path, text), {}, {})


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        pytest.param({"MILEAGE_SERVER_PORT": "http"}, "MILEAGE_SERVER_PORT", id="no number"),
        pytest.param({"MILEAGE_SERVER_PORT": "99999"}, "server.port", id="out of range"),
        pytest.param(
            {"MILEAGE_ROUTING_AFFINITY": "perhaps"}, "MILEAGE_ROUTING_AFFINITY", id="bool"
        ),
    ],
)
def test_a_bad_environment_is_refused_by_name(environ: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        load_config(None, {}, environ)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: path / "absent.toml", id="absent"),
        pytest.param(lambda path: path, id="a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Any) -> None:
    with pytest.raises(ConfigError, match="--config"):
        load_config(make(tmp_path), {}, {})


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mileage.toml"
    path.write_bytes('[aliases]\na = "ü"\n'.encode("latin-1"))
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(path, {}, {})


def test_state_is_kept_where_the_system_says() -> None:
    assert state_directory({"XDG_STATE_HOME": "/x"}) == Path("/x/mileage")
    assert state_directory({}) == Path.home() / ".local/state/mileage"
