"""Configurations and outputs of the programs that the benchmarks start."""

from __future__ import annotations

import json
import random
import tomllib
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from benchmarks.support.competitors import litellm_config
from benchmarks.support.machine import CoreTimes, parse_core_times
from benchmarks.support.mileage import mileage_config
from benchmarks.support.mixed import DECK, deck
from benchmarks.support.nginx import nginx_config, proxy_config
from benchmarks.support.stacks import Upstreams
from benchmarks.support.wrk import WrkResult, parse_wrk, wrk_script
from mileage.cli.config import Config
from mileage.engines.config import EngineConfig
from mileage.gateway.config import ServerConfig, TenantConfig

UPSTREAMS = Upstreams(chat_port=9001, stream_port=9002)


def test_mileage_is_configured_with_keys_ledger_and_both_engines() -> None:
    config = tomllib.loads(
        mileage_config(
            UPSTREAMS,
            Path("/tmp/x y"),
            port=9000,
            admin_port=9003,
            keys=["sk-a", "sk-b"],
            server={"header_timeout_s": 2.5},
        )
    )
    server = msgspec.convert(config["server"], ServerConfig)
    engines = msgspec.convert(config["engines"], list[EngineConfig])
    tenants = msgspec.convert(config["tenants"], dict[str, TenantConfig])
    assert (server.port, server.header_timeout_s) == (9000, 2.5)
    assert [engine.url for engine in engines] == ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
    assert len({tenant.key_hashes for tenant in tenants.values()}) == 2
    assert config["ledger"] == {"directory": "/tmp/x y/ledger"}
    assert config["admin"]["port"] == 9003


def test_mileage_without_metering_keeps_looks_at_and_shares_out_nothing() -> None:
    text = mileage_config(
        UPSTREAMS, Path("/tmp/x"), port=9000, admin_port=9003, keys=["sk-a"], metering=False
    )
    config = msgspec.convert(tomllib.loads(text), Config)
    assert [config.ledger.enabled, config.attribution.enabled, config.telemetry.enabled] == [
        False
    ] * 3
    assert config.journal.enabled


def test_litellm_is_configured_with_both_models_and_a_key() -> None:
    config = json.loads(litellm_config(UPSTREAMS, "sk-x"))
    urls = [entry["litellm_params"]["api_base"] for entry in config["model_list"]]
    assert urls == ["http://127.0.0.1:9001/v1", "http://127.0.0.1:9002/v1"]
    assert config["general_settings"]["master_key"] == "sk-x"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(nginx_config(Path("/tmp/x"), chat_port=9003, stream_port=9004), id="engine"),
        pytest.param(
            proxy_config(Path("/tmp/x"), UPSTREAMS, chat_port=9003, stream_port=9004), id="proxy"
        ),
    ],
)
def test_nginx_config_has_balanced_braces_and_both_ports(text: str) -> None:
    assert "listen 127.0.0.1:9003" in text
    assert "listen 127.0.0.1:9004" in text
    outside_strings = "".join(text.split("'")[::2])
    assert outside_strings.count("{") == outside_strings.count("}")


def test_nginx_proxy_keeps_its_connections_to_both_upstreams() -> None:
    text = proxy_config(Path("/tmp/x"), UPSTREAMS, chat_port=9003, stream_port=9004)
    assert "server 127.0.0.1:9001; keepalive 256" in text
    assert "server 127.0.0.1:9002; keepalive 256" in text


def test_wrk_script_quotes_the_body() -> None:
    script = wrk_script(b'{"a":"\\n"}', "sk-x")
    assert r'wrk.body = "{\"a\":\"\\n\"}"' in script
    assert '"Bearer sk-x"' in script
    assert "Authorization" not in wrk_script(b"{}", None)


def test_wrk_script_refuses_text_that_lua_would_read_otherwise() -> None:
    with pytest.raises(ValueError, match="ASCII"):
        wrk_script("é".encode(), None)


def test_figures_are_read_out_of_wrks_output() -> None:
    line = '{"completed":100,"bytes":5,"duration_us":2000000,"errors":1,"p50_us":7,"p99_us":9}'
    result = parse_wrk(f"Running 2s test\nBENCHMARK-RESULT {line}\n")
    assert result == WrkResult(
        completed=100, bytes=5, duration_us=2_000_000, errors=1, p50_us=7, p99_us=9
    )
    assert result.requests_per_s == 50


def test_wrk_without_figures_is_an_error() -> None:
    result = parse_wrk("unable to connect to 127.0.0.1")
    assert (result.completed, result.errors) == (0, 1)
    assert "unable to connect" in str(result.failure)


def test_core_times_count_neither_idling_nor_waiting_for_disks_as_busy() -> None:
    text = (
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 10 50 800 30 4 6 20 0 0\ncpu1 1 0 0 5 0 0 0 0\nintr 5"
    )
    cores = parse_core_times(text, ticks_per_s=100)
    assert cores == {0: CoreTimes(1.7, 0.2), 1: CoreTimes(0.01, 0.0)}
    assert cores[0] - CoreTimes(0.7, 0.1) == CoreTimes(1.0, 0.1)


def test_deck_keeps_its_shares_and_its_total() -> None:
    kinds = Counter(deck(1000, random.Random(7)))
    assert kinds == {kind: count * 10 for kind, count in DECK.items()}
    assert len(list(deck(250, random.Random(7)))) == 250
    assert sum(DECK.values()) == 100
