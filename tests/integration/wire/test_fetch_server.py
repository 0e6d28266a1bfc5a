"""fetch() against servers on loopback: whole answers, and all that can go wrong with one."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mileage.core.errors import EngineError
from mileage.wire.fetch import FetchError, FetchResponse, fetch
from tests.support.loopback_server import Answer, Hang, LoopbackServer, Reset, Seen, http


def get(answer: Answer, **options: Any) -> FetchResponse:
    """Fetch from a server that gives this answer."""

    async def run() -> FetchResponse:
        async with LoopbackServer(lambda seen: answer) as server:
            return await fetch(server.url + "/x", **{"timeout_s": 5, **options})

    return asyncio.run(run())


def failure(answer: Answer, **options: Any) -> FetchError:
    """The error of fetching from a server that gives this answer."""
    with pytest.raises(FetchError) as caught:
        get(answer, **options)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        pytest.param(http(200, b"hello"), 200, b"hello", id="a body with its length"),
        pytest.param(http(503, b"loading"), 503, b"loading", id="an error is an answer"),
        pytest.param(b"HTTP/1.1 204 X\r\n\r\n", 204, b"", id="no content"),
        pytest.param(http(302, b"", ["Location: /y"]), 302, b"", id="a redirect is not followed"),
        pytest.param(
            b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            200,
            b"abcde",
            id="chunked",
        ),
        pytest.param(
            b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\n\r\n",
            200,
            b"a",
            id="chunked, with a trailer",
        ),
        pytest.param(b"HTTP/1.1 200 X\r\n\r\nto the end", 200, b"to the end", id="until the close"),
        pytest.param(b"HTTP/1.0 200 X\r\n\r\nold", 200, b"old", id="HTTP/1.0"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" + http(200, b"hello"),
            200,
            b"hello",
            id="100 before it",
        ),
        pytest.param(
            b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n" + http(201, b"x"),
            201,
            b"x",
            id="103 before",
        ),
        pytest.param(http(200, b"one") + http(200, b"two"), 200, b"one", id="a second answer"),
        pytest.param(http(200, b"one") + b"garbage", 200, b"one", id="garbage behind it"),
    ],
)
def test_a_whole_answer(raw: bytes, status: int, body: bytes) -> None:
    response = get(raw)
    assert (response.status, response.body) == (status, body)


def test_an_early_hint_lends_the_answer_no_headers() -> None:
    response = get(b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n" + http(200, b"x", ["A: b"]))
    assert (response.header("link"), response.header("a")) == (None, "b")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(b"", "closed without an answer", id="closed at once"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-", "closed in the middle", id="half a header"),
        pytest.param(
            b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nhalf", "closed in the middle", id="half"
        ),
        pytest.param(
            b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "closed in the middle",
            id="half a chunk",
        ),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP", id="another protocol"),
        pytest.param(
            b"HTTP/1.1 200 X\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab",
            "not HTTP",
            id="two lengths",
        ),
        pytest.param(
            b"HTTP/1.1 200 X\r\nContent-Length: -1\r\n\r\n", "not HTTP", id="negative length"
        ),
        pytest.param(
            b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nabc",
            "switched protocols",
            id="an upgrade",
        ),
        pytest.param(Reset(http(200, b"x")[:-1]), "connection broke", id="a reset in mid-answer"),
        pytest.param(
            Reset(b"HTTP/1.1 200 X\r\n\r\nab"), "connection broke", id="a reset is no close"
        ),
        pytest.param(
            b"HTTP/1.1 200 X\r\n" + b"a: b\r\n" * 20_000 + b"\r\n", "header larger", id="long head"
        ),
        pytest.param(Hang(b"HTTP/1.1 200 X\r\nA: " + b"a" * 99_999), "header larger", id="line"),
    ],
)
def test_a_broken_answer(answer: Answer, message: str) -> None:
    error = failure(answer)
    assert error.kind == "broken"
    assert message in error.message


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"Content-Length: 100000\r\n\r\n", id="with its length"),
        pytest.param(b"\r\n", id="without a length"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n186A0\r\n", id="chunked"),
    ],
)
def test_a_body_over_the_bound_is_refused(head: bytes) -> None:
    error = failure(b"HTTP/1.1 200 X\r\n" + head + b"x" * 100_000, body_bytes_max=9_999)
    assert error.kind == "broken"
    assert "larger than 9999 bytes" in error.message


def test_a_body_at_the_bound_is_taken() -> None:
    assert get(http(200, b"x" * 9_999), body_bytes_max=9_999).body == b"x" * 9_999


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(Hang(), "no answer within 1 s", id="nothing comes"),
        pytest.param(Hang(http(200, b"hello")[:-1]), "no whole answer", id="the end does not come"),
        pytest.param(
            Hang(b"HTTP/1.1 200 X\r\n\r\nab"), "no whole answer", id="the close does not come"
        ),
    ],
)
def test_a_late_answer_is_a_timeout(answer: Answer, message: str) -> None:
    error = failure(answer, timeout_s=1.0)
    assert error.kind == "timeout"
    assert message in error.message


def test_no_connection_is_left_behind() -> None:
    async def run() -> None:
        async with LoopbackServer(lambda seen: Hang(b"HTTP/1.1 200 X\r\n\r\nab")) as server:
            with pytest.raises(FetchError):
                await fetch(server.url, timeout_s=0.05)
            await server.until(lambda: not server.transports)

    asyncio.run(run())


def test_a_cancelled_fetch_drops_its_connection() -> None:
    async def run() -> None:
        async with LoopbackServer(lambda seen: Hang()) as server:
            task = asyncio.create_task(fetch(server.url, timeout_s=60))
            await server.until(lambda: bool(server.seen))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.until(lambda: not server.transports)

    asyncio.run(run())


def test_a_refused_connection() -> None:
    async def run() -> str:
        async with LoopbackServer(lambda seen: b"") as server:
            return server.url

    url = asyncio.run(run())
    with pytest.raises(FetchError) as caught:
        asyncio.run(fetch(url, timeout_s=60))
    assert (caught.value.kind, caught.value.message) == ("connect", "connection refused")
    assert caught.value.engine == url


def sent(url_part: str = "/", **options: Any) -> Seen:
    """The request as the server saw it; `url_part` may begin with credentials and @."""

    async def run() -> Seen:
        async with LoopbackServer(lambda seen: http(200)) as server:
            credentials, at, path = url_part.rpartition("@")
            url = server.url.replace("://", f"://{credentials}{at}") + path
            await fetch(url, timeout_s=60, **options)
            return server.seen[0]

    return asyncio.run(run())


def test_a_get_request() -> None:
    seen = sent("/a?b=c", headers=[("authorization", "Bearer k")])
    assert (seen.method, seen.target, seen.body) == ("GET", "/a?b=c", b"")
    assert seen.headers["host"].startswith("127.0.0.1:")
    assert seen.headers["authorization"] == "Bearer k"
    assert seen.headers["connection"] == "close"
    assert seen.headers["accept-encoding"] == "identity"
    assert "content-length" not in seen.headers


def test_a_post_request() -> None:
    seen = sent(method="POST", body=b"{}", headers=[("content-type", "application/json")])
    assert (seen.method, seen.body, seen.headers["content-length"]) == ("POST", b"{}", "2")


def test_credentials_of_the_url_are_sent_unless_there_is_a_key() -> None:
    assert sent("u:p@/").headers["authorization"] == "Basic dTpw"
    seen = sent("u:p@/", headers=[("Authorization", "Bearer k")])
    assert seen.headers["authorization"] == "Bearer k"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run(
            [*command, *names, "-keyout", str(path), "-out", f"{path}.crt"],
            check=True,
            capture_output=True,
            timeout=60,
        )
    except FileNotFoundError:
        pytest.skip("no openssl here to make a certificate with")
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


def over_tls(certificate: Path, **options: Any) -> FetchResponse:
    """Fetch from a TLS server with that certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def run() -> FetchResponse:
        async with LoopbackServer(lambda seen: http(200, b"hi"), context=context) as server:
            return await fetch(server.url, timeout_s=60, **options)

    return asyncio.run(run())


def test_tls_with_a_certificate_that_is_trusted(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    assert over_tls(certificate, ssl_context=trusting).body == b"hi"


def test_tls_with_a_certificate_that_is_not(certificate: Path) -> None:
    with pytest.raises(FetchError) as caught:
        over_tls(certificate)
    assert caught.value.kind == "connect"
    assert "certificate not accepted" in caught.value.message


def test_tls_to_a_server_without_it() -> None:
    async def run() -> None:
        async with LoopbackServer(lambda seen: b"what?") as server:
            await fetch(server.url.replace("http:", "https:"), timeout_s=1)

    with pytest.raises(FetchError):
        asyncio.run(run())


def mutations(raw: bytes) -> st.SearchStrategy[bytes]:
    """The answer with a few bytes replaced, cut out or put in."""
    edit = st.tuples(st.integers(0, len(raw)), st.integers(0, 3), st.binary(max_size=4))

    def apply(edits: list[tuple[int, int, bytes]]) -> bytes:
        data = raw
        for at, cut, text in edits:
            data = data[:at] + text + data[at + cut :]
        return data

    return st.lists(edit, min_size=1, max_size=4).map(apply)


CHUNKED = b"HTTP/1.1 200 X\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(st.binary(max_size=60), mutations(CHUNKED)), min_size=1, max_size=5))
def test_nothing_but_an_engine_error_escapes(answers: list[bytes]) -> None:
    queue = iter(answers)

    async def run() -> None:
        async with LoopbackServer(lambda seen: next(queue)) as server:
            for _ in answers:
                try:
                    response = await fetch(server.url, timeout_s=5)
                except EngineError:
                    continue
                assert 100 <= response.status <= 999

    asyncio.run(run())


def test_it_works_on_uvloop_as_well() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def kinds() -> list[str]:
        found = []
        answers: list[Answer] = [http(200, b"hi"), b"HTTP/1.1 200 X\r\nContent-", Hang()]
        async with LoopbackServer(lambda seen: answers.pop(0)) as server:
            assert (await fetch(server.url, timeout_s=60)).body == b"hi"
            url = server.url
            for timeout_s in (60, 1.0):
                with pytest.raises(FetchError) as caught:
                    await fetch(url, timeout_s=timeout_s)
                found.append(caught.value.kind)
        with pytest.raises(FetchError) as caught:
            await fetch(url, timeout_s=60)
        return [*found, caught.value.kind]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(kinds()) == ["broken", "timeout", "connect"]
