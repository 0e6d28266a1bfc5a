"""Remote engines: from `[[engines]]` and --engine to all that the planes need to call one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, cast
from urllib.parse import urlsplit

import msgspec

from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint
from mileage.engines.capabilities import controllable
from mileage.engines.config import EngineConfig, EngineKind
from mileage.engines.kinds import KINDS, MODELS_PATH
from mileage.engines.vllm_control import ControlAccess
from mileage.wire.url import basic_authorization, display_url, origin

__all__ = ["RemoteEngine", "parse_engine", "resolve", "resolve_all"]

_ARGUMENT = "KIND=http://host:port, KIND=NAME@http://host:port or http://host:port"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_NAME_EXPECTED = "up to 128 letters, digits and . _ : -, a letter or digit first"
_KEY = re.compile(r"[\x21-\x7e]+")


class RemoteEngine(msgspec.Struct, frozen=True, kw_only=True):
    """One replica, resolved: nothing left to look up. `url` carries no credentials.

    Field names are those of the data plane's Upstream and the poller's PollTarget, which are made
    from it with `msgspec.convert(engine, Upstream, from_attributes=True)`.
    """

    kind: EngineKind
    name: str
    url: str
    """Base: `/v1/...` is appended."""
    authorization: str | None
    stream_usage: bool
    names_requests: bool
    cache_salt: bool
    unsupported: tuple[Endpoint, ...]
    unsure: tuple[Endpoint, ...]
    models: tuple[str, ...]
    health_urls: tuple[str, ...]
    models_url: str
    metrics_urls: tuple[str, ...]
    version_urls: tuple[str, ...]
    version_field: str
    dcgm_url: str | None
    nvml: bool
    gpu_ids: tuple[str, ...]
    sleep_level: Literal[1, 2] | None
    lora_slots: int
    kv_events_url: str | None
    kv_events_replay_url: str | None
    kv_events_ranks: int
    gpus: float
    gpu: str
    """As the catalogue spells it; empty: not known."""
    health_interval_s: float
    health_timeout_s: float
    scrape_interval_s: float
    connections_max: int
    connect_timeout_s: float
    response_timeout_s: float
    control: ControlAccess | None = None
    """Where the governor sets its limits; None: nowhere."""


def parse_engine(text: str) -> EngineConfig:
    """One --engine argument: KIND=URL, KIND=NAME@URL, or either without KIND= (openai).

    Raises ConfigError for anything else.
    """
    kind, equals, rest = text.partition("=")
    if not equals or "://" in kind:
        kind, rest = "openai", text
    if kind not in KINDS:
        raise ConfigError("--engine", display_url(kind), f"a kind ({', '.join(KINDS)}) before '='")
    name: str | None
    name, at, url = rest.partition("@")
    if not at or "://" in name:  # no @, or one that ends credentials
        name, url = None, rest
    elif not _NAME.fullmatch(name):
        raise ConfigError("--engine", name, f"a name before '@': {_NAME_EXPECTED}")
    _base_url("--engine", url, _ARGUMENT)
    return EngineConfig(kind=cast("EngineKind", kind), url=url, name=name)


def resolve(config: EngineConfig, environ: Mapping[str, str]) -> RemoteEngine:
    """All about one engine; its key is read from `environ`.

    Raises ConfigError for a URL that is no base of an engine, a bad name, or a key that is not
    there or cannot be sent. No message contains a key or a password.
    """
    with config.named():
        return _resolve(config, environ)


def _resolve(config: EngineConfig, environ: Mapping[str, str]) -> RemoteEngine:
    base = _base_url("engines.url", config.url, "http://host:port or https://host:port")
    if config.name is not None and not _NAME.fullmatch(config.name):
        raise ConfigError("engines.name", config.name, _NAME_EXPECTED)
    kind = KINDS[config.kind]
    metrics_urls = tuple(base + path for path in kind.metrics_paths)
    if config.metrics_url is not None:
        metrics_urls = (_page_url("engines.metrics_url", config.metrics_url),)
    dcgm_url = config.dcgm_url
    if dcgm_url is not None:
        dcgm_url = _page_url("engines.dcgm_url", dcgm_url)
    return RemoteEngine(
        kind=config.kind,
        name=config.name or urlsplit(base).netloc,
        url=base,
        authorization=_authorization(config, environ),
        stream_usage=kind.stream_usage if config.stream_usage is None else config.stream_usage,
        names_requests=kind.names_requests,
        cache_salt=kind.cache_salt,
        unsupported=kind.lacks,
        unsure=kind.may,
        models=config.models,
        health_urls=tuple(base + path for path in kind.health_paths),
        models_url=base + MODELS_PATH,
        metrics_urls=metrics_urls,
        version_urls=tuple(base + path for path in kind.version_paths),
        version_field=kind.version_field,
        dcgm_url=dcgm_url,
        nvml=config.nvml,
        gpu_ids=config.gpu_ids,
        sleep_level=config.sleep_level,
        lora_slots=config.lora_slots,
        kv_events_url=config.kv_events_url,
        kv_events_replay_url=config.kv_events_replay_url,
        kv_events_ranks=config.kv_events_ranks,
        gpus=config.gpus,
        gpu=config.gpu_name,
        health_interval_s=config.health_interval_s,
        health_timeout_s=config.health_timeout_s,
        scrape_interval_s=config.scrape_interval_s,
        connections_max=config.connections_max,
        connect_timeout_s=config.connect_timeout_s,
        response_timeout_s=config.response_timeout_s,
        control=_control(config, base, environ),
    )


def resolve_all(
    configs: Iterable[EngineConfig], environ: Mapping[str, str]
) -> tuple[RemoteEngine, ...]:
    """Every engine, resolved. Raises ConfigError as `resolve`, and for two of the same name."""
    engines: dict[str, RemoteEngine] = {}
    for config in configs:
        engine = resolve(config, environ)
        if engine.name in engines:
            raise ConfigError(
                "engines.name",
                engine.name,
                "a name of its own for each engine (by default its host and port)",
            )
        engines[engine.name] = engine
    return tuple(engines.values())


def _base_url(key: str, url: str, expected: str) -> str:
    """The URL that paths are appended to: without credentials, and without /v1 at its end."""
    try:
        origin(url)
    except ValueError as error:
        raise ConfigError(key, display_url(url), f"{expected} ({error})") from error
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise ConfigError(key, display_url(url), f"{expected}, without ? and #")
    return display_url(url).rstrip("/").removesuffix("/v1").rstrip("/")


def _page_url(key: str, url: str) -> str:
    try:
        origin(url)
    except ValueError as error:
        raise ConfigError(key, display_url(url), f"http://host:port/path ({error})") from error
    parts = urlsplit(url)
    return parts._replace(path="/metrics").geturl() if parts.path in ("", "/") else url


def _authorization(config: EngineConfig, environ: Mapping[str, str]) -> str | None:
    """The value of the Authorization header, from the key's variable or the URL's credentials."""
    basic = basic_authorization(config.url)
    variable = config.api_key_env
    if variable is None:
        return basic
    if basic is not None:
        raise ConfigError(
            "engines.api_key_env", variable, "no user and password in the url beside it"
        )
    return f"Bearer {_secret('engines.api_key_env', variable, environ)}"


def _control(config: EngineConfig, base: str, environ: Mapping[str, str]) -> ControlAccess | None:
    control = config.control
    if control is None or not control.enabled:
        return None
    if config.kind not in controllable():
        told = f"none: of the kinds only {', '.join(controllable())} can be set from here"
        raise ConfigError("engines.control", config.kind, told)
    variable, token = control.token_env, None
    if variable is not None:
        token = _secret("engines.control.token_env", variable, environ)
    return ControlAccess(
        url=base,
        token=token,
        token_file=control.token_file,
        lease_s=control.lease_s,
        step_budget=control.step_budget,
    )


def _secret(key: str, variable: str, environ: Mapping[str, str]) -> str:
    secret = environ.get(variable, "")
    if not secret:
        raise ConfigError(key, variable, "the name of an environment variable that is set")
    if not _KEY.fullmatch(secret):
        raise ConfigError(key, variable, "a variable that holds printable ASCII without spaces")
    return secret
