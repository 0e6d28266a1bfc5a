"""Commands: help with an example, keys, and refusals that name the option."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage import __version__
from mileage.cli.config import Config
from mileage.cli.config_source import check_exposure
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError
from mileage.gateway.config import ServerConfig, TenantConfig
from mileage.gateway.keys import Caller, KeyRing, key_hash


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    "command",
    [["serve"], ["requests"], ["replay"], ["keys", "create"], ["keys", "list"], ["keys", "revoke"]],
)
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Example: mileage {' '.join(command)}" in result.output


def test_version() -> None:
    assert run("--version").output.strip() == __version__


def test_a_new_key_opens_and_its_configuration_is_valid_toml() -> None:
    output = run("keys", "create", "team-a").output
    key = output.split("shown only now):")[1].split()[0]
    tenants = tomllib.loads(output[output.index("[tenants.") :])["tenants"]
    (digest,) = TenantConfig(**tenants["team-a"]).key_hashes
    assert KeyRing({digest: "a"}).caller(f"Bearer {key}".encode(), None) == Caller("a")


def test_a_new_key_as_json() -> None:
    made = json.loads(run("keys", "create", "a", "--json").output)
    assert made["tenant"] == "a"
    assert made["key_hash"] == key_hash(made["key"])


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        pytest.param(["keys", "create", "no spaces"], "tenant", id="tenant"),
        pytest.param(["keys", "create", "a", "--name", "a=b"], "--name", id="a key's name"),
        pytest.param(["serve", "--alias", "a"], "--alias", id="alias"),
        pytest.param(["serve", "--engine", "vlm=http://a:1"], "--engine", id="kind"),
        pytest.param(["serve", "--log-level", "loud"], "--log-level", id="log level"),
        pytest.param(["serve", "--slots", "0"], "embedded.slots", id="slots"),
        pytest.param(["serve", "--weights", "q2_k"], "embedded.weights", id="weights"),
        pytest.param(["serve", "--host", "0.0.0.0"], "server.host", id="exposed without keys"),
        pytest.param(
            ["serve", "--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.key"],
            "server.tls_cert",
            id="a certificate that is not there",
        ),
        pytest.param(["serve", "--config", "/nowhere.toml"], "--config", id="file"),
    ],
)
def test_a_bad_option_is_refused_by_name(arguments: list[str], key: str) -> None:
    error = run(*arguments).exception
    assert isinstance(error, ConfigError)
    assert error.key.startswith(key)


@pytest.mark.parametrize(
    ("server", "keys", "refused"),
    [
        pytest.param({"host": "127.0.0.1"}, False, False, id="loopback"),
        pytest.param({"host": "::1"}, False, False, id="loopback, IPv6"),
        pytest.param({"host": "localhost"}, False, False, id="localhost"),
        pytest.param({"host": "0.0.0.0"}, False, True, id="all addresses, no keys"),
        pytest.param({"host": "10.0.0.1"}, True, False, id="keys"),
        pytest.param({"host": "0.0.0.0", "allow_no_keys": True}, False, False, id="told so"),
    ],
)
def test_other_machines_need_keys(server: dict[str, Any], keys: bool, refused: bool) -> None:
    tenants = {"a": TenantConfig(key_hashes=(key_hash("x"),))} if keys else {}
    config = Config(server=ServerConfig(**server), tenants=tenants)
    if refused:
        with pytest.raises(ConfigError, match=r"server\.host"):
            check_exposure(config)
    else:
        check_exposure(config)
