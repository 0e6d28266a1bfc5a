"""Where what is wrong with a configuration is written, and that no secret is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mileage.cli.config_source import ConfigSource
from mileage.core.errors import ConfigError
from tests.support.certificate import write_certificate

SECRET = "TOPSECRET-value-of-some-length"
ADAPTER = '[[adapters]]\nname = "first"\npath = "/a.gguf"\nbase = "smollm2"\n'
ENGINE = '[[engines]]\nkind = "vllm"\nurl = "http://10.0.0.1:8000"\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mileage.toml"
    path.write_text(text, "utf-8")
    return path


def error_of(path: Path | None, flags: Any = None, environ: Any = None) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        ConfigSource(path, flags or {}, environ or {}).load()
    return raised.value


@pytest.mark.parametrize(
    ("text", "line", "key", "expected"),
    [
        pytest.param("[slo]\n\nttft_s = 0\n", 3, "slo.ttft_s", "positive", id="a target of 0"),
        pytest.param(
            '\n[governor]\npolicy = "best"\n',
            3,
            "governor.policy",
            "one of static, aimd, volatility, utilisation, tail_memory, mixture, model",
            id="a policy",
        ),
        pytest.param(
            "[governor.static]\nlimit = 2.5\n",
            2,
            "governor.static.limit",
            "got 2.5, expected a whole number",
            id="half a request",
        ),
        pytest.param(
            "[admin]\ntoken = 1234567890123456\n",
            2,
            "admin.token",
            "got '(as given)', expected text in quotes",
            id="a token that is no text is not told",
        ),
        pytest.param(
            '[experiment]\nname = "x"\n[experiment.governor]\npolicy = "magic"\n',
            4,
            "experiment.governor.policy",
            "got 'magic', expected one of static",
            id="a choice in a table that may be absent",
        ),
        pytest.param(
            '[tokenizer.models]\nllama = "/nowhere/tokenizer.json"\n',
            2,
            "tokenizer.models.llama",
            "a tokenizer.json, or a directory with one: /nowhere/tokenizer.json is no file",
            id="a tokenizer that is not there",
        ),
        pytest.param("[server]\nport = 1\nprot = 2\n", 3, "server.prot", "no such key", id="a key"),
        pytest.param("\n[sever]\n", 2, "sever", "no such key", id="a section"),
        pytest.param(
            "[tenants.a]\n[tenants.b]\n[[tenants.b.budgets]]\n"
            'amount = 5\nunit = "euro"\nper = "day"\n',
            5,
            "tenants.b.budgets[0].unit",
            "got 'euro', expected one of usd, tokens, gpu_s",
            id="the unit of a budget",
        ),
        pytest.param(
            '[tenants.a]\n[[tenants.a.budgets]]\nper = "day"\nunit = "tokens"\namount = -1\n',
            5,
            "tenants.a.budgets[0].amount",
            "positive",
            id="the amount of a budget",
        ),
        pytest.param(
            '[[tenants.a.budgets]]\namount = 2e9\nunit = "usd"\nper = "month"\n',
            2,
            "tenants.a.budgets[0].amount",
            "at most 1e+09",
            id="more money than is counted",
        ),
        pytest.param(
            '[[tenants.a.budgets]]\namount = 2e15\nunit = "tokens"\nper = "month"\n',
            2,
            "tenants.a.budgets[0].amount",
            "at most 1e+15",
            id="more tokens than are counted",
        ),
        pytest.param(
            "[tenants.a]\nrequests_per_min = 1e-300\n",
            2,
            "tenants.a.requests_per_min",
            "0.001..1000000000000.0",
            id="a rate that would say come back after the end of time",
        ),
        pytest.param(
            '[tenants."a.b"]\nconcurrency_max = 0\n',
            2,
            "tenants.a.b.concurrency_max",
            "at least 1",
            id="a tenant with a dot in its name",
        ),
        pytest.param(
            '[[tenants.a.budgets]]\namount = 1\nunit = "usd"\nper = "day"\n[costs]\n',
            5,
            "costs.usd_per_gpu_hour",
            "a price",
            id="a key that is absent, but its table is there",
        ),
        pytest.param(
            "[costs.models.m]\nprompt_usd_per_mtok = 1\noutput_usd_per_mtok = 1\n"
            '[costs.models."n.n"]\nprompt_usd_per_mtok = -1\noutput_usd_per_mtok = 1\n',
            5,
            "costs.models.n.n.prompt_usd_per_mtok",
            "0.0..1000000.0",
            id="the price of a model",
        ),
        pytest.param(
            f"{ENGINE}{ENGINE.replace('10.0.0.1', '10.0.0.2')}health_interval_s = 0\n",
            7,
            "engines.health_interval_s",
            "(engine http://10.0.0.2:8000)",
            id="the second engine",
        ),
        pytest.param(
            f'{ENGINE}[[engines]]\nkind = "vllm"\n', 4, "engines[1].url", "required", id="no url"
        ),
        pytest.param(
            f'{ENGINE}name = "a"\n{ENGINE}api_key_env = "NOT_SET"\n',
            8,
            "engines.api_key_env",
            "variable that is set",
            id="an engine's key that is not there",
        ),
        pytest.param(
            f'{ENGINE}{ENGINE.replace("10.0.0.1", "10.0.0.2")}kv_events_url = "tcp://10.0.0.2"\n',
            7,
            "engines.kv_events_url",
            "tcp://host:port, the endpoint of the engine's event publisher (engine http://10.0.0.2",
            id="cache events without a port",
        ),
        pytest.param(
            f'{ENGINE}kv_events_ranks = 4\nkv_events_url = "tcp://10.0.0.2:65533"\n',
            5,
            "engines.kv_events_url",
            "a port up to 65532: there are 4 ranks",
            id="more ranks than ports",
        ),
        pytest.param(
            f'{ENGINE}kv_events_url = "tcp://h:1"\nkv_events_replay_url = "h"\n',
            5,
            "engines.kv_events_replay_url",
            "tcp://host:port",
            id="no address to ask for cache events again",
        ),
        pytest.param(
            f'{ADAPTER}{ADAPTER.replace("first", "second")}tenant = "acme"\n',
            9,
            "adapters[1].tenant",
            "a tenant that is configured (adapter second)",
            id="the tenant of the second adapter",
        ),
        pytest.param(
            f"{ADAPTER}{ADAPTER}",
            6,
            "adapters[1].name",
            "another adapter has it",
            id="two adapters of one name",
        ),
        pytest.param(f"{ENGINE}{ENGINE}", 1, "engines.name", "of its own", id="one name twice"),
        pytest.param(
            '[server]\nhost = "0.0.0.0"\n', 2, "server.host", "a loopback address", id="exposed"
        ),
        pytest.param(
            '[server]\ntls_cert = "/nowhere/a.pem"\ntls_key = "/nowhere/b.pem"\n',
            2,
            "server.tls_cert",
            "readable",
            id="no certificate",
        ),
        pytest.param(
            '[admin]\ntls_key = "/nowhere/b.pem"\ntls_cert = "/nowhere/a.pem"\n',
            3,
            "admin.tls_cert",
            "readable",
            id="no certificate of the admin plane",
        ),
        pytest.param('[aliases]\na = "b"\nb = "c"\n', 2, "aliases.a", "a model", id="an alias"),
        pytest.param("a = 1\n[server\n", 2, "--config", "valid TOML", id="no TOML"),
        pytest.param("a = [\n1,\n", 3, "--config", "valid TOML", id="cut off"),
    ],
)
def test_file_line_key_and_what_is_expected(
    tmp_path: Path, text: str, line: int, key: str, expected: str
) -> None:
    path = written(tmp_path, text)
    error = error_of(path)
    assert (error.place, error.key) == (f"{path}:{line}", key)
    assert expected in str(error)
    assert str(error).startswith(f"{path}:{line}: {key}: got ")


def test_a_value_of_the_environment_is_told_by_its_variable(tmp_path: Path) -> None:
    path = written(tmp_path, "[slo]\nttft_s = 1\n")
    error = error_of(path, environ={"MILEAGE_SLO_TTFT_S": "-1"})
    assert (error.place, error.key) == ("MILEAGE_SLO_TTFT_S", "slo.ttft_s")
    assert "MILEAGE_SLO_ITL_S" in str(error_of(path, environ={"MILEAGE_SLO_ITL_S": "x"}))


def test_a_value_of_the_command_line_is_told_so(tmp_path: Path) -> None:
    path = written(tmp_path, '[server]\nport = 1\n[aliases]\na = "b"\n')
    assert error_of(path, {"server.port": -1}).place == "the command line"
    assert error_of(path, {"aliases": {"c": "a"}}).place == "the command line"
    assert error_of(path, {"aliases": {"b": "d"}}).place == f"{path}:4"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'[admin]\ntoken = "{SECRET} "\n', id="a token with a space"),
        pytest.param(f'[admin]\ntoken = ["{SECRET}"]\n', id="a token in a list"),
        pytest.param(f'[admin]\ntokn = "{SECRET}"\n', id="a misspelt key"),
        pytest.param(f'admin = "{SECRET}"\n', id="no table"),
        pytest.param(f'[tenants.a]\nkey_hashes = ["{SECRET}"]\n', id="a key in the clear"),
        pytest.param(f'[admin]\ntoken = "{SECRET}\n', id="a text that does not end"),
        pytest.param(f"[admin]\ntoken = {SECRET}\n", id="a text without quotes"),
        pytest.param(
            f'{ENGINE.replace("10.0", f"me:{SECRET}@10.0")}api_key_env = "X"\n', id="an engine's"
        ),
        pytest.param(
            f'{ENGINE}metrics_url = "ftp://me:{SECRET}@10.0.0.1/"\n', id="of a metrics url"
        ),
    ],
)
@pytest.mark.parametrize("environ", [{}, {"MILEAGE_ADMIN_PORT": "1"}], ids=["file", "both"])
def test_no_message_has_a_secret(tmp_path: Path, text: str, environ: dict[str, str]) -> None:
    assert SECRET not in str(error_of(written(tmp_path, text), environ=environ))


def test_it_sees_that_files_were_written(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = f'[server]\ntls_cert = "{certificate}"\ntls_key = "{key}"\n'
    path = written(tmp_path, tls)
    source = ConfigSource(path, {}, {})
    source.load()
    assert source.look() == source.seen
    for file in (path, certificate, key):
        os.utime(file, ns=(1, 1))
        assert source.look() != source.seen
        source.load()
        assert source.look() == source.seen
    replaced = tmp_path / "other.toml"
    replaced.write_text("[server\n", "utf-8")
    replaced.replace(path)
    with pytest.raises(ConfigError):
        source.load()
    assert source.look() == source.seen, "what cannot be read is not read again and again"
    path.unlink()
    assert source.look() != source.seen


def test_cache_events_without_their_package_are_refused_by_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    path = written(tmp_path, f'{ENGINE}kv_events_url = "tcp://h:1"\n')
    error = error_of(path)
    assert error.place == f"{path}:4"
    assert "pip install 'mileage[kv_events]'" in error.expected


def test_a_budget_may_be_a_month_of_a_large_fleet(tmp_path: Path) -> None:
    budget = '[[tenants.a.budgets]]\namount = 5e12\nunit = "tokens"\nper = "month"\n'
    config = ConfigSource(written(tmp_path, budget), {}, {}).load()
    assert config.tenants["a"].budgets[0].amount == 5e12
