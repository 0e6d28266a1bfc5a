"""The endpoint under test: its address, its keys, and what it says that it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mileage.cli.bench_target import (
    Endpoint,
    bearer_of,
    headers_of,
    look_at,
    model_of,
    tenant_keys,
    unknown_model,
    url_of,
)
from mileage.core.errors import ConfigError
from mileage.wire.fetch import FetchError, FetchResponse

URL = "http://host:8000"
SECRET = "sk-very-secret"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        pytest.param("http://host:8000", "http://host:8000", id="as it is"),
        pytest.param("http://host:8000/", "http://host:8000", id="with a slash"),
        pytest.param("http://host:8000/v1", "http://host:8000", id="with /v1"),
        pytest.param("http://host:8000/v1/", "http://host:8000", id="with /v1 and a slash"),
        pytest.param("https://host/llm/v1", "https://host/llm", id="below a prefix"),
        pytest.param("https://host/v1/llm", "https://host/v1/llm", id="a prefix that has /v1"),
        pytest.param("http://[::1]:80", "http://[::1]:80", id="IPv6"),
    ],
)
def test_the_address_is_what_v1_follows(text: str, url: str) -> None:
    assert url_of(text) == url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("host:8000", "http://HOST:PORT", id="no scheme"),
        pytest.param("ftp://host", "http://HOST:PORT", id="another scheme"),
        pytest.param("http://", "http://HOST:PORT", id="no host"),
        pytest.param("http://host:99999", "http://HOST:PORT", id="no such port"),
        pytest.param("http://host/?a=b", "without a query", id="a query"),
        pytest.param("http://host/#a", "without a query", id="a fragment"),
    ],
)
def test_what_is_no_address_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=r"^URL: got") as caught:
        url_of(text)
    assert expected in caught.value.expected


def test_credentials_in_an_address_are_not_told() -> None:
    with pytest.raises(ConfigError) as caught:
        url_of(f"http://user:{SECRET}@host/?key={SECRET}", key="A")
    assert str(caught.value).startswith("A: got 'http://host/'")
    assert SECRET not in str(caught.value)


def test_the_key_is_of_a_variable_or_a_file_or_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_KEY", f" {SECRET}\n")
    file = tmp_path / "key"
    file.write_text(f"{SECRET}2\nmore\n")
    assert bearer_of("BENCH_KEY", None, URL) == f"Bearer {SECRET}"
    assert bearer_of(None, file, URL) == f"Bearer {SECRET}2"
    assert bearer_of(None, None, "http://user:pass@host") == "Basic dXNlcjpwYXNz"
    assert bearer_of("BENCH_KEY", None, "http://user:pass@host") == f"Bearer {SECRET}"
    assert bearer_of(None, None, URL) is None
    with pytest.raises(ConfigError, match="nothing beside --api-key-env"):
        bearer_of("BENCH_KEY", file, URL)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, "No such file", id="no file"),
        pytest.param(b"", "in its first line", id="an empty file"),
        pytest.param(b"\nkey\n", "in its first line", id="an empty line"),
        pytest.param(b"\xff\xfe", "not text", id="bytes that are no text"),
        pytest.param("schlüssel".encode(), "printable ASCII", id="no header can have it"),
        pytest.param(b"a\x00b", "printable ASCII", id="a control character"),
    ],
)
def test_a_file_without_a_key_is_named(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^--api-key-file: ") as caught:
        bearer_of(None, file, URL)
    assert expected in str(caught.value)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"^--api-key-env: got 'BENCH_KEY'"):
        bearer_of("BENCH_KEY", None, URL)


def test_a_key_in_place_of_a_variables_name_is_not_told() -> None:
    with pytest.raises(ConfigError, match=r"^--api-key-env: got 'what is no name") as caught:
        bearer_of(SECRET, None, URL)
    assert SECRET not in str(caught.value)


def test_tenants_have_keys_of_their_own() -> None:
    environ = {"ACME_KEY": "a", "OTHER": "b"}
    found = tenant_keys(["acme=ACME_KEY", "*=OTHER"], environ)
    assert found == {"acme": "Bearer a", "*": "Bearer b"}


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([SECRET], id="no tenant"),
        pytest.param([f"={SECRET}"], id="an empty tenant"),
        pytest.param(["acme="], id="no variable"),
        pytest.param([f"acme={SECRET}"], id="a key in place of a variable"),
        pytest.param(["acme=ACME_KEY", "acme=ACME_KEY"], id="a tenant twice"),
        pytest.param(["acme=UNSET"], id="a variable that is not set"),
    ],
)
def test_a_tenants_key_that_cannot_be_is_refused_and_not_told(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"^--tenant-key: ") as caught:
        tenant_keys(texts, {"ACME_KEY": "a"})
    assert SECRET not in str(caught.value)


def test_headers_are_read_as_http_has_them() -> None:
    assert headers_of(["X-Team:  blue : 1 ", "x-empty:"]) == (
        (b"x-team", b"blue : 1"),
        (b"x-empty", b""),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("x-team", "'NAME: VALUE'", id="no value"),
        pytest.param(": blue", "'NAME: VALUE'", id="no name"),
        pytest.param("x team: blue", "'NAME: VALUE'", id="a name that is none"),
        pytest.param("x-team: a\r\nx-b: c", "'NAME: VALUE'", id="a second header in it"),
        pytest.param("Host: other", "HTTP's own", id="framing"),
        pytest.param("Content-Length: 3", "HTTP's own", id="a length"),
        pytest.param(f"Authorization: Bearer {SECRET}", "--api-key-env", id="a key"),
        pytest.param(f"X-API-Key: {SECRET}", "--api-key-env", id="a key by another name"),
    ],
)
def test_a_header_that_cannot_be_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=r"^--header: ") as caught:
        headers_of([text])
    assert expected in caught.value.expected
    assert SECRET not in str(caught.value)


class Server:
    """Answers every question alike, and notes what it was asked."""

    def __init__(self, answer: Callable[[str], FetchResponse]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, tuple[tuple[str, str], ...]]] = []

    async def __call__(
        self,
        url: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        timeout_s: float,
        body_bytes_max: int = 0,
    ) -> FetchResponse:
        assert timeout_s > 0
        self.asked.append((url, tuple(headers)))
        return self._answer(url)


def looked_at(
    status: int, body: bytes = b"", url: str = URL, authorization: str | None = None
) -> tuple[Endpoint, Server]:
    answer = FetchResponse(status, (("server", "uvicorn"),), body)
    server = Server(lambda _: answer)
    endpoint = asyncio.run(look_at(url, authorization=authorization, fetch=server))
    return endpoint, server


def test_its_models_are_asked_for_with_the_key() -> None:
    body = b'{"data":[{"id":"toy"},{"id":"other"}]}'
    endpoint, server = looked_at(200, body, authorization=f"Bearer {SECRET}")
    assert server.asked == [(f"{URL}/v1/models", (("authorization", f"Bearer {SECRET}"),))]
    assert endpoint.models == ("toy", "other")
    assert (endpoint.server, endpoint.error) == ("uvicorn", None)
    assert looked_at(200, body)[1].asked[0][1] == ()


@pytest.mark.parametrize("status", [404, 405, 501])
def test_an_endpoint_without_a_list_may_be_measured(status: int) -> None:
    endpoint, _ = looked_at(status)
    assert (endpoint.models, endpoint.error) == (None, None)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"data":3}', b"[" * 100_000])
def test_a_list_that_cannot_be_read_is_as_none(body: bytes) -> None:
    endpoint, _ = looked_at(200, body)
    assert (endpoint.models, endpoint.error) == (None, None)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(401, "refuses the key (401): --api-key-env", id="no key"),
        pytest.param(403, "refuses the key (403): --api-key-env", id="a wrong key"),
        pytest.param(500, "/v1/models was answered with 500", id="out of order"),
        pytest.param(302, "/v1/models was answered with 302", id="elsewhere"),
    ],
)
def test_an_endpoint_that_does_not_answer_well_is_told(status: int, error: str) -> None:
    endpoint, _ = looked_at(status, url=f"http://user:{SECRET}@host")
    assert endpoint.error is not None
    assert endpoint.error.startswith("http://host: ")
    assert error in endpoint.error
    assert endpoint.models is None


def test_an_endpoint_that_is_down_is_told_without_its_credentials() -> None:
    def refused(url: str) -> FetchResponse:
        raise FetchError(url, "connect", "connection refused")

    url = f"http://user:{SECRET}@host"
    endpoint = asyncio.run(look_at(url, authorization=None, fetch=Server(refused)))
    assert endpoint.error == "http://host: connection refused"
    assert endpoint.shown == "http://host"


def endpoint_with(*models: str) -> Endpoint:
    return Endpoint(url=URL, models=models)


def test_the_only_model_need_not_be_named() -> None:
    assert model_of(endpoint_with("toy"), None) == "toy"
    assert model_of(endpoint_with("toy", "other"), "other") == "other"
    assert model_of(endpoint_with("toy"), "an-alias") == "an-alias"


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        pytest.param(endpoint_with("a", "b"), "one of a, b", id="several"),
        pytest.param(
            endpoint_with(*(f"m{n}" for n in range(15))), "m11 and 3 more", id="very many"
        ),
        pytest.param(endpoint_with(), "does not tell which it has", id="none"),
        pytest.param(Endpoint(url=URL, models=None), "does not tell", id="no list"),
    ],
)
def test_where_it_is_not_clear_a_model_must_be_named(endpoint: Endpoint, expected: str) -> None:
    with pytest.raises(ConfigError, match=r"^--model: ") as caught:
        model_of(endpoint, None)
    assert expected in caught.value.expected


def test_a_model_that_is_not_listed_is_told_with_those_near_it() -> None:
    said = unknown_model(endpoint_with("llama-3-8b", "qwen"), "llama-3-8")
    assert said == (f"{URL}: no model 'llama-3-8': it has llama-3-8b, qwen; near: llama-3-8b")
    assert unknown_model(endpoint_with("toy"), "zzz") == f"{URL}: no model 'zzz': it has toy"


@pytest.mark.parametrize(
    "endpoint", [endpoint_with("toy"), endpoint_with(), Endpoint(url=URL, models=None)]
)
def test_a_model_is_not_doubted_where_nothing_speaks_against_it(endpoint: Endpoint) -> None:
    assert unknown_model(endpoint, "toy") is None
