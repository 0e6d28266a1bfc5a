"""The endpoint under test: its address, its key, and what it says that it serves."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.scrape.model_list import parse_models
from mileage.wire.fetch import Fetch, FetchError
from mileage.wire.url import basic_authorization, display_url, origin

__all__ = [
    "Endpoint",
    "bearer_of",
    "headers_of",
    "look_at",
    "model_of",
    "tenant_keys",
    "unknown_model",
    "url_of",
]

_TIMEOUT_S: Final = 10.0
_ABSENT: Final = (404, 405, 501)
_SHOWN_MAX: Final = 12
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e]*)")
_OURS: Final = ("host", "content-length", "content-type", "connection", "transfer-encoding")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of an endpoint before the run."""

    url: str
    """Without /v1 and without a slash at its end."""
    models: tuple[str, ...] | None
    """None: it has no list of models, or none that can be read."""
    server: str | None = None
    """What it calls itself."""
    error: str | None = None
    """Why it is not to be reached, or does not answer."""

    @property
    def shown(self) -> str:
        """The address without credentials."""
        return display_url(self.url)


def url_of(text: str, key: str = "URL") -> str:
    """The address that /v1 follows; a /v1 at its end may be given. Raises ConfigError."""
    try:
        origin(text)
    except ValueError as error:
        raise ConfigError(key, display_url(text), f"http://HOST:PORT ({error})") from None
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise ConfigError(key, display_url(text), "a URL without a query")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")


def bearer_of(variable: str | None, file: Path | None, url: str) -> str | None:
    """The value of the Authorization header; None where there is no key. Raises ConfigError."""
    if variable is not None and file is not None:
        raise ConfigError("--api-key-file", str(file), "nothing beside --api-key-env")
    if variable is not None:
        return f"Bearer {_key_of(variable, '--api-key-env')}"
    if file is not None:
        return f"Bearer {_first_line(file)}"
    return basic_authorization(url)


def tenant_keys(texts: Sequence[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Authorization by tenant, of TENANT=VARIABLE. Raises ConfigError."""
    found: dict[str, str] = {}
    for text in texts:
        tenant, equals, variable = text.partition("=")
        if not (equals and tenant and variable):
            shown = f"{tenant}=..." if equals else "..."  # it may be a key
            raise ConfigError("--tenant-key", shown, "TENANT=VARIABLE, such as acme=ACME_KEY")
        if tenant in found:
            raise ConfigError("--tenant-key", tenant, "each tenant once")
        found[tenant] = f"Bearer {_key_of(variable, '--tenant-key', environ)}"
    return found


def _key_of(variable: str, key: str, environ: Mapping[str, str] | None = None) -> str:
    text = (os.environ if environ is None else environ).get(variable, "").strip()
    if not text:
        # What is no name may be the key itself, put there by mistake.
        named = re.fullmatch(r"[A-Z_][A-Z0-9_]*", variable)
        shown = variable if named else "what is no name of a variable"
        raise ConfigError(key, shown, "the name of an environment variable that is set")
    return _usable(text, key)


def _first_line(file: Path) -> str:
    try:
        text = file.read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError("--api-key-file", str(file), f"a file with a key ({reason})") from None
    if not text:
        raise ConfigError("--api-key-file", str(file), "a file with a key in its first line")
    return _usable(text, "--api-key-file")


def _usable(text: str, key: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(key, "a key", "one of printable ASCII characters")
    return text


def headers_of(texts: Sequence[str]) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of 'NAME: VALUE'. Raises ConfigError."""
    found = []
    for text in texts:
        match = _HEADER.fullmatch(text)
        name = match[1].lower() if match else text.partition(":")[0]
        if match is None or name in _OURS:
            raise ConfigError("--header", name, "'NAME: VALUE', and none of HTTP's own framing")
        if name in ("authorization", "api-key", "x-api-key"):
            raise ConfigError("--header", name, "keys by --api-key-env or --api-key-file")
        found.append((name.encode(), match[2].strip().encode()))
    return tuple(found)


async def look_at(url: str, *, authorization: str | None, fetch: Fetch) -> Endpoint:
    """Asks for its list of models; whatever goes wrong is told in the result."""
    headers = () if authorization is None else (("authorization", authorization),)
    shown = display_url(url)
    try:
        answer = await fetch(f"{url}/v1/models", headers=headers, timeout_s=_TIMEOUT_S)
    except FetchError as error:
        return Endpoint(url=url, models=None, error=f"{shown}: {error.message}")
    server = answer.header("server")
    if answer.status in (401, 403):
        message = f"{shown}: refuses the key ({answer.status}): --api-key-env, --api-key-file"
        return Endpoint(url=url, models=None, server=server, error=message)
    if answer.status in _ABSENT:
        return Endpoint(url=url, models=None, server=server)
    if answer.status != 200:
        message = f"{shown}: /v1/models was answered with {answer.status}"
        return Endpoint(url=url, models=None, server=server, error=message)
    try:
        models = parse_models(shown, answer.body).names
    except EngineError:
        models = None
    return Endpoint(url=url, models=models, server=server)


def model_of(endpoint: Endpoint, asked: str | None) -> str:
    """The model to ask for: as asked, else the only one. Raises ConfigError."""
    if asked is not None:
        return asked
    models = endpoint.models
    if not models:
        raise ConfigError("--model", None, f"a model: {endpoint.shown} does not tell which it has")
    if len(models) > 1:
        raise ConfigError("--model", None, f"one of {_listed(models)}")
    return models[0]


def unknown_model(endpoint: Endpoint, model: str) -> str | None:
    """What is to be said of a model that the endpoint does not list; None where it does."""
    models = endpoint.models
    if not models or model in models:
        return None
    near = difflib.get_close_matches(model, models, n=3)
    hint = f"; near: {', '.join(near)}" if near else ""
    return f"{endpoint.shown}: no model {model!r}: it has {_listed(models)}{hint}"


def _listed(models: Sequence[str]) -> str:
    more = f" and {len(models) - _SHOWN_MAX} more" if len(models) > _SHOWN_MAX else ""
    return ", ".join(models[:_SHOWN_MAX]) + more
