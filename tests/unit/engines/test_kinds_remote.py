"""From --engine and [[engines]] to a resolved engine, and what is refused on the way."""

from __future__ import annotations

import contextlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.engines.config import EngineConfig
from mileage.engines.remote import RemoteEngine, parse_engine, resolve, resolve_all
from mileage.gateway.config import Upstream
from mileage.scrape.target import PollTarget


@pytest.mark.parametrize(
    ("text", "kind", "name", "url"),
    [
        pytest.param("vllm=http://h:8000", "vllm", "h:8000", "http://h:8000", id="kind and URL"),
        pytest.param("http://h:8000", "openai", "h:8000", "http://h:8000", id="a URL alone"),
        pytest.param("sglang=a@http://h:1", "sglang", "a", "http://h:1", id="with a name"),
        pytest.param("a@http://h:1", "openai", "a", "http://h:1", id="a name and a URL"),
        pytest.param("vllm=http://u:p@h:1", "vllm", "h:1", "http://h:1", id="credentials"),
        pytest.param("vllm=a@http://u:p@h:1", "vllm", "a", "http://h:1", id="name and credentials"),
        pytest.param("vllm=https://h", "vllm", "h", "https://h", id="https, no port"),
        pytest.param("vllm=http://[::1]:80", "vllm", "[::1]:80", "http://[::1]:80", id="IPv6"),
        pytest.param("vllm=http://h:1/", "vllm", "h:1", "http://h:1", id="a slash at the end"),
        pytest.param("vllm=http://h:1/v1", "vllm", "h:1", "http://h:1", id="as for OpenAI clients"),
        pytest.param("vllm=http://h:1/v1/", "vllm", "h:1", "http://h:1", id="with a slash"),
        pytest.param("vllm=http://h/a/b", "vllm", "h", "http://h/a/b", id="below a path"),
    ],
)
def test_an_engine_on_the_command_line(text: str, kind: str, name: str, url: str) -> None:
    engine = resolve(parse_engine(text), {})
    assert (engine.kind, engine.name, engine.url) == (kind, name, url)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("vllm", id="a kind alone"),
        pytest.param("vllm=", id="a kind and nothing"),
        pytest.param("=http://h:1", id="no kind before ="),
        pytest.param("vlm=http://h:1", id="a kind that there is not"),
        pytest.param("VLLM=http://h:1", id="in capitals"),
        pytest.param("vllm=h:8000", id="no scheme"),
        pytest.param("h:8000", id="host and port alone"),
        pytest.param("vllm=ftp://h", id="another scheme"),
        pytest.param("vllm=http://", id="no host"),
        pytest.param("vllm=http://h:99999", id="a port out of range"),
        pytest.param("vllm=http://h:x", id="a port that is no number"),
        pytest.param("vllm=http://[::1", id="half an IPv6 address"),
        pytest.param("vllm=http://h/?model=a", id="a query"),
        pytest.param("http://h/?model=a", id="a query after a URL alone"),
        pytest.param("vllm=http://h/#a", id="a fragment"),
        pytest.param("vllm=@http://h:1", id="an empty name"),
        pytest.param("vllm=a b@http://h:1", id="a space in the name"),
        pytest.param("vllm=-a@http://h:1", id="a name that begins with a dash"),
        pytest.param(f"vllm={'a' * 129}@http://h:1", id="a name too long"),
        pytest.param("vllm=http://h1 http://h2", id="two URLs"),
    ],
)
def test_what_is_no_engine_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_engine(text)
    assert caught.value.key == "--engine"


@pytest.mark.parametrize(
    "text",
    ["vllm=ftp://u:secret@h", "vllm=http://u:secret@h:x", "ftp//u:secret@h=1", "u:secret@h"],
)
def test_a_refusal_shows_no_password(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_engine(text)
    assert "secret" not in str(caught.value)


@given(st.text(max_size=40), st.sampled_from(["", "vllm=", "vllm=a@", "vllm=http://", "http://"]))
def test_any_argument_is_an_engine_or_a_config_error(text: str, before: str) -> None:
    with contextlib.suppress(ConfigError):
        assert resolve(parse_engine(before + text), {}).url.startswith(("http://", "https://"))


def config(**fields: object) -> EngineConfig:
    """An engine entry."""
    return EngineConfig(**{"kind": "vllm", "url": "http://h:8000", **fields})  # type: ignore[arg-type]


def test_addresses_follow_from_the_kind() -> None:
    engine = resolve(config(kind="trtllm"), {})
    assert engine.health_urls == ("http://h:8000/health", "http://h:8000/v1/models")
    assert engine.models_url == "http://h:8000/v1/models"
    assert engine.metrics_urls == ("http://h:8000/prometheus/metrics", "http://h:8000/metrics")
    assert engine.version_urls == ("http://h:8000/version",)
    assert engine.unsure == ("embeddings", "responses", "messages")
    assert engine.unsupported == ()
    assert resolve(config(kind="triton"), {}).unsupported == ("responses", "messages")


@pytest.mark.parametrize(
    ("metrics_url", "expected"),
    [
        pytest.param("http://h:8002/metrics", "http://h:8002/metrics", id="as it is"),
        pytest.param(
            "http://h:8002", "http://h:8002/metrics", id="/metrics where no path is given"
        ),
        pytest.param("http://h:8002/", "http://h:8002/metrics", id="nor more than a slash"),
        pytest.param("http://h/m?model=a", "http://h/m?model=a", id="a query belongs to it"),
    ],
)
def test_metrics_elsewhere(metrics_url: str, expected: str) -> None:
    assert resolve(config(metrics_url=metrics_url), {}).metrics_urls == (expected,)


def test_stream_usage_is_as_the_kind_does_unless_told() -> None:
    assert resolve(config(), {}).stream_usage
    assert not resolve(config(stream_usage=False), {}).stream_usage


def test_the_key_comes_from_the_environment() -> None:
    engine = resolve(config(api_key_env="KEY"), {"KEY": "sk-123"})
    assert engine.authorization == "Bearer sk-123"
    assert resolve(config(), {"KEY": "sk-123"}).authorization is None


def test_credentials_of_the_url_become_a_header() -> None:
    engine = resolve(config(url="http://u:p%40@h:8000"), {})
    assert engine.authorization == "Basic dTpwQA=="
    assert "p%40" not in repr(engine.url) + repr(engine.health_urls) + engine.name


@pytest.mark.parametrize(
    ("fields", "environ", "key"),
    [
        pytest.param({"api_key_env": "KEY"}, {}, "engines.api_key_env", id="not set"),
        pytest.param({"api_key_env": "KEY"}, {"KEY": ""}, "engines.api_key_env", id="empty"),
        pytest.param(
            {"api_key_env": "KEY"}, {"KEY": "secret\n"}, "engines.api_key_env", id="a line break"
        ),
        pytest.param(
            {"api_key_env": "KEY"}, {"KEY": "secret\u20ac"}, "engines.api_key_env", id="no ASCII"
        ),
        pytest.param(
            {"api_key_env": "KEY", "url": "http://u:secret@h"},
            {"KEY": "secret"},
            "engines.api_key_env",
            id="beside credentials in the URL",
        ),
        pytest.param({"name": "a b"}, {}, "engines.name", id="a bad name"),
        pytest.param({"url": "http://u:secret@h/?x"}, {}, "engines.url", id="a query"),
        pytest.param({"url": "http://u:secret@h:0x"}, {}, "engines.url", id="a bad port"),
        pytest.param({"url": "ftp://u:secret@h"}, {}, "engines.url", id="another scheme"),
        pytest.param({"url": "http://u:secret@[::1"}, {}, "engines.url", id="half an address"),
        pytest.param(
            {"metrics_url": "//u:secret@h/m"}, {}, "engines.metrics_url", id="no metrics URL"
        ),
    ],
)
def test_an_unusable_entry_is_named_without_its_secrets(
    fields: dict[str, object], environ: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(config(**fields), environ)
    assert caught.value.key == key
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "which"),
    [
        pytest.param({"connections_max": 0}, "http://h:8000", id="by its URL"),
        pytest.param({"connections_max": 0, "name": "big"}, "big", id="by its name"),
        pytest.param(
            {"health_timeout_s": math.inf, "url": "http://u:p@h/"}, "http://h/", id="safe"
        ),
        pytest.param({"api_key_env": "KEY", "name": "big"}, "big", id="whose key is missing"),
        pytest.param({"url": "ftp://h", "name": "big"}, "big", id="whose URL is none"),
    ],
)
def test_an_unusable_entry_is_told_from_the_others(fields: dict[str, object], which: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(config(**fields), {})
    assert str(caught.value).endswith(f" (engine {which})")


def test_what_the_message_shows_already_is_not_said_twice() -> None:
    with pytest.raises(ConfigError) as caught:
        config(url="ftp://u:p@h")
    assert str(caught.value) == (
        "engines.url: got 'ftp://h', expected http://host:port or https://host:port"
    )


def test_two_engines_of_one_name_are_refused_with_the_name() -> None:
    with pytest.raises(ConfigError, match=r"engines\.name: got 'h:8000'"):
        resolve_all([config(), config(kind="sglang")], {})
    engines = resolve_all([config(), config(name="b"), config(url="http://h:8001")], {})
    assert [engine.name for engine in engines] == ["h:8000", "b", "h:8001"]


def test_both_planes_take_a_resolved_engine_field_by_field() -> None:
    fields = {"models": ("m",), "connect_timeout_s": 1.5, "scrape_interval_s": 3.0}
    engine = resolve(config(api_key_env="KEY", **fields), {"KEY": "k"})
    for struct in (Upstream, PollTarget):
        made = msgspec.convert(engine, struct, from_attributes=True)
        for name in struct.__struct_fields__:
            if name in RemoteEngine.__struct_fields__:
                assert getattr(made, name) == getattr(engine, name)
    shared = set(RemoteEngine.__struct_fields__)
    assert set(Upstream.__struct_fields__) - shared == {"lora", "request_tag"}
    extra = set(PollTarget.__struct_fields__) - shared
    assert extra == {"scrape_timeout_s", "failures_max", "timeouts_max"}
