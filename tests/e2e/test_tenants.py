"""Keys, TLS and several workers at once: who may ask, and under whose name it is written down."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest

from tests.support.certificate import write_certificate
from tests.support.engine import ScriptedEngine
from tests.support.engine_answers import text_of
from tests.support.gateway import Gateway, run_mileage
from tests.support.raw_http import RawClient, get, post

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"model": "toy", "messages": HELLO}
WORKERS = 3
ENGINE_KEY = "the-engine-s-own-key"


class Site:
    """A gateway with tenants alpha and beta, over TLS, on several workers."""

    def __init__(self, directory: Path, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.keys = {name: self._new_key(directory, name) for name in ("alpha", "beta")}
        certificate, key = write_certificate(directory)
        self.tls = ssl.create_default_context(cafile=str(certificate))
        tenants = "".join(
            f'[tenants.{name}]\nkey_hashes = ["{made["key_hash"]}"]\n'
            for name, made in self.keys.items()
        )
        self.gateway = Gateway(
            directory,
            *("--workers", str(WORKERS), "--tls-cert", str(certificate), "--tls-key", str(key)),
            config=f"""
{tenants}
[[engines]]
kind = "vllm"
url = "{engine.url}"
api_key_env = "THE_ENGINE_KEY"
""",
            environment={"THE_ENGINE_KEY": ENGINE_KEY},
        )
        self.since_utc_ns = 0

    @staticmethod
    def _new_key(directory: Path, tenant: str) -> dict[str, str]:
        made = run_mileage("keys", "create", tenant, "--json", state=directory / "state")
        assert made.returncode == 0, made.stderr
        found = msgspec.json.decode(made.stdout, type=dict[str, str | None])
        return {name: value for name, value in found.items() if value is not None}

    def key(self, tenant: str) -> str:
        """A tenant's key."""
        return self.keys[tenant]["key"]

    def http(self, **headers: str) -> httpx.Client:
        """A plain client over TLS."""
        return httpx.Client(base_url=self.gateway.root, verify=self.tls, headers=headers)

    def raw(self) -> RawClient:
        """A connection for exact bytes, over TLS."""
        return RawClient(self.gateway.port, tls=self.tls)

    def rows(self, count: int) -> list[Any]:
        """The ledger's requests since the test began."""
        return list(self.gateway.requests(count, since_utc_ns=self.since_utc_ns))


@pytest.fixture(scope="module")
def site_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ScriptedEngine() as engine:
        site = Site(tmp_path_factory.mktemp("site"), engine)
        with site.gateway:
            yield site


@pytest.fixture
def site(site_of_module: Site) -> Site:
    site_of_module.engine.reset()
    site_of_module.since_utc_ns = time.time_ns()
    return site_of_module


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("Authorization: Bearer KEY", id="bearer"),
        pytest.param("authorization: bearer   KEY ", id="bearer in small letters, with spaces"),
        pytest.param("x-api-key: KEY", id="x-api-key, as Anthropic's client sends it"),
    ],
)
def test_key_opens_and_names_the_tenant(site: Site, header: str) -> None:
    header = header.replace("KEY", site.key("beta"))
    with site.raw() as raw:
        assert raw.ask(post("/v1/chat/completions", BODY, header)).status == 200
        assert raw.ask(get("/v1/models", header)).json["data"][0]["id"] == "toy"
    assert [row.tenant for row in site.rows(1)] == ["beta"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        pytest.param(None, "an API key is needed", id="no key"),
        pytest.param("Authorization: Bearer mlg-wrong", "not valid", id="a wrong key"),
        pytest.param("Authorization: Bearer ", "not valid", id="an empty key"),
        pytest.param("Authorization: KEY", "not valid", id="no scheme"),
        pytest.param("Authorization: Basic KEY", "not valid", id="another scheme"),
        pytest.param("x-api-key: mlg-wrong", "not valid", id="a wrong x-api-key"),
        pytest.param("Authorization: Bearer HASH", "not valid", id="the hash of a key"),
    ],
)
def test_without_a_valid_key_nothing_reaches_the_engine(
    site: Site, header: str | None, message: str
) -> None:
    made = site.keys["alpha"]
    headers = []
    if header is not None:
        headers.append(header.replace("KEY", made["key"]).replace("HASH", made["key_hash"]))
    with site.raw() as raw:
        asked = raw.ask(post("/v1/chat/completions", BODY, *headers))
        listed = raw.ask(get("/v1/models", *headers))
        alive = raw.ask(get("/healthz"))
    assert (asked.status, listed.status, alive.status) == (401, 401, 200)
    assert asked.headers["www-authenticate"] == "Bearer"
    error = asked.json["error"]
    assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")
    assert message in error["message"]
    assert not site.engine.received


def test_refusal_of_a_key_never_repeats_it(site: Site) -> None:
    with site.http(authorization="Bearer mlg-mistyped-secret") as client:
        answer = client.post("/v1/chat/completions", json=BODY)
    assert "mistyped" not in answer.text
    assert "mistyped" not in site.gateway.log


def test_official_client_over_tls(site: Site) -> None:
    with (
        httpx.Client(verify=site.tls) as http,
        site.gateway.client(api_key=site.key("alpha"), http_client=http) as client,
    ):
        stream = client.chat.completions.create(model="toy", messages=HELLO, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert text == text_of(5)
        with pytest.raises(openai.AuthenticationError, match="not valid"):
            client.with_options(api_key="mlg-other").models.list()
    assert [row.tenant for row in site.rows(1)] == ["alpha"]


def test_engine_gets_its_own_key_and_never_the_client_s(site: Site) -> None:
    with site.http(authorization=f"Bearer {site.key('alpha')}") as client:
        client.post("/v1/chat/completions", json=BODY)
    (request,) = site.engine.received
    assert request.header("authorization") == f"Bearer {ENGINE_KEY}"
    assert site.key("alpha").encode() not in repr(request).encode()


def test_plain_http_on_the_tls_port_is_closed(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.gateway.port), timeout=60) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP/1.1" not in plain.recv(4096)


def test_all_workers_serve_and_the_ledger_has_every_request_once(site: Site) -> None:
    count = 60
    ids = set()
    for _ in range(count):
        # A connection each: the kernel spreads connections over the workers.
        with site.http(authorization=f"Bearer {site.key('alpha')}") as client:
            answer = client.post("/v1/chat/completions", json=BODY)
            ids.add(int(answer.headers["x-request-id"].removeprefix("req-"), 16))
    rows = site.rows(count)
    assert {row.id for row in rows} == ids
    assert {row.outcome for row in rows} == {"ok"}
    served_by = {request_id & 0b111111 for request_id in ids}
    assert served_by == set(range(WORKERS))
    assert len(site.gateway.workers()) == WORKERS


def test_where_the_gateway_has_no_keys_an_engine_with_its_own_never_sees_the_client_s(
    tmp_path: Path, site: Site
) -> None:
    config = f"""
[[engines]]
kind = "vllm"
url = "{site.engine.url}"
api_key_env = "THE_ENGINE_KEY"
"""
    environment = {"THE_ENGINE_KEY": ENGINE_KEY}
    with Gateway(tmp_path, config=config, environment=environment) as gateway:
        headers = {"authorization": "Bearer a-client-s"}
        httpx.post(f"{gateway.url}/chat/completions", json=BODY, headers=headers)
    (request,) = site.engine.received
    assert request.header("authorization") == f"Bearer {ENGINE_KEY}"
