"""Which keys are hot: every key of the structs is in one table, and a plan keeps the cold ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.cli.config import Config
from mileage.cli.hot_keys import COLD, HOT, changes, is_hot, plan
from mileage.core.errors import ConfigError
from mileage.gateway.keys import key_hash

TLS = {"tls_cert": "a.pem", "tls_key": "b.pem"}


def config(**sections: Any) -> Config:
    return msgspec.convert(sections, Config)


def test_every_key_is_hot_or_cold_and_not_both() -> None:
    problems = []
    for field in msgspec.structs.fields(Config):
        section = field.name
        hot, cold = HOT.get(section, ()), COLD.get(section, ())
        struct = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        keys = set(field.type.__struct_fields__) if struct else {"*"}
        if (hot, cold) in ((("*",), ()), ((), ("*",))):
            continue
        if set(hot) & set(cold) or set(hot) | set(cold) != keys:
            problems.append((section, set(hot) ^ set(cold) ^ keys))
    assert problems == []


def test_no_table_names_a_section_that_is_not_there() -> None:
    assert HOT.keys() | COLD.keys() == set(Config.__struct_fields__)


@pytest.mark.parametrize("table", [HOT, COLD], ids=["hot", "cold"])
def test_the_tables_are_sorted(table: dict[str, tuple[str, ...]]) -> None:
    assert list(table) == sorted(table)
    assert [keys for keys in table.values() if list(keys) != sorted(keys)] == []


ENGINE = {"kind": "vllm", "url": "http://a:1"}
OTHER = {"kind": "vllm", "url": "http://b:1"}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        pytest.param({}, {"server": {"port": 8080}}, [], id="the default, written"),
        pytest.param({}, {"slo": {"ttft_s": 1}}, ["slo.ttft_s"], id="a key"),
        pytest.param(
            {"slo": {"models": {"a": {"ttft_s": 1}, "b": {}}}},
            {"slo": {"models": {"a": {"ttft_s": 2}, "c": {}}}},
            ["slo.models.a.ttft_s", "slo.models.b", "slo.models.c"],
            id="keys of what has a name; names that came or went",
        ),
        pytest.param(
            {"aliases": {"a": "x", "b": "y"}},
            {"aliases": {"b": "y", "a": "z", "c": "x"}},
            ["aliases.a", "aliases.c"],
            id="aliases",
        ),
        pytest.param(
            {"tenants": {"t": {}}},
            {"tenants": {"t": {"budgets": [{"amount": 1, "unit": "tokens", "per": "day"}]}}},
            ["tenants.t.budgets"],
            id="a list is one key",
        ),
        pytest.param(
            {"engines": [ENGINE]},
            {"engines": [{**ENGINE, "gpus": 2}, OTHER]},
            ["engines.a:1.gpus", "engines.b:1"],
            id="engines by name",
        ),
        pytest.param(
            {"engines": [ENGINE, OTHER]},
            {"engines": [OTHER, ENGINE]},
            ["engines"],
            id="order",
        ),
    ],
)
def test_what_differs_is_named(
    old: dict[str, Any], new: dict[str, Any], changed: list[str]
) -> None:
    assert [".".join(path) for path in changes(config(**old), config(**new))] == changed


def test_a_plan_takes_what_is_hot_and_names_what_is_not() -> None:
    running = config(server={"port": 1, "idle_timeout_s": 1}, admin={"port": 2})
    written = config(
        server={"port": 3, "idle_timeout_s": 4},
        admin={"port": 5},
        ledger={"on_failure": "closed", "token_times": False},
        aliases={"a": "b"},
    )
    found = plan(running, written)
    assert found.config == config(
        server={"port": 1, "idle_timeout_s": 4},
        admin={"port": 2},
        ledger={"on_failure": "closed"},
        aliases={"a": "b"},
    )
    assert found.restart_needed == ["server.port", "admin.port", "ledger.token_times"]
    assert set(found.changed) == {
        *found.restart_needed,
        "server.idle_timeout_s",
        "ledger.on_failure",
        "aliases.a",
    }
    assert plan(found.config, written).changed == found.restart_needed
    assert plan(running, running) == (running, [], [])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([ENGINE], [], id="to our own engine"),
        pytest.param([], [ENGINE], id="from our own engine"),
    ],
)
def test_our_own_engine_comes_and_goes_with_the_gateway(
    before: list[Any], after: list[Any]
) -> None:
    running = config(engines=before)
    found = plan(running, config(engines=after, aliases={"a": "b"}))
    assert found.config == config(engines=before, aliases={"a": "b"})
    assert found.restart_needed == ["engines.a:1"]
    assert plan(config(engines=[ENGINE]), config(engines=[OTHER])).restart_needed == []


def test_every_cold_key_of_a_section_keeps_its_value() -> None:
    # Every key of the plain sections, changed: what the plan keeps is exactly what is cold.
    sections = {
        "server": {
            "host": "127.0.0.2",
            "port": 1,
            "workers": 2,
            "allow_no_keys": True,
            **TLS,
            **dict.fromkeys(("connections_max", "headers_max", "pipeline_max"), 7),
            **dict.fromkeys(("header_bytes_max", "body_bytes_max", "buffer_bytes_max"), 4096),
            **{f"{name}_timeout_s": 1.5 for name in ("header", "body", "write", "idle", "drain")},
            "cors_origins": ["https://a"],
            "allowed_hosts": ["a"],
            "watch_config": False,
            "cache_salt": "tenant",
            "cache_salt_key_file": "/x",
        },
        "ledger": {
            "database": "postgresql://db/ledger",
            "directory": "/x",
            "budget_lease_ratio": 0.5,
            "on_failure": "closed",
            "segment_bytes_max": 1 << 20,
            "token_times": False,
            "retention_days": 3,
        },
    }
    for section, values in sections.items():
        running, written = Config(), config(**{section: values})
        # Without a ledger nothing can hang on its records: `enabled` is below.
        assert set(values) == set(getattr(running, section).__struct_fields__) - {"enabled"}
        merged = getattr(plan(running, written).config, section)
        old, new = getattr(running, section), getattr(written, section)
        for key in values:
            assert getattr(merged, key) == getattr(new if is_hot(section, key) else old, key), key
    switched_off = plan(Config(), config(ledger={"enabled": False}))
    assert switched_off.restart_needed == ["ledger.enabled"]
    assert switched_off.config.ledger.enabled


def test_what_is_hot_must_fit_with_what_stays() -> None:
    running = config(server=TLS | {"host": "127.0.0.1"}, tenants={"a": {}})
    assert plan(running, config()).restart_needed == ["server.tls_cert", "server.tls_key"]
    digest = key_hash("k")
    budget = {"amount": 1, "unit": "usd", "per": "day"}
    good = config(
        costs={"usd_per_gpu_hour": 1}, tenants={"a": {"key_hashes": [digest], "budgets": [budget]}}
    )
    assert plan(config(), good).config == good
    with pytest.raises(ConfigError):
        config(tenants={"a": {"budgets": [budget]}})
