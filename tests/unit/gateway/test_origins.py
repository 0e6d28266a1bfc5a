"""Which web pages may call, where no key keeps the others out."""

from __future__ import annotations

import pytest

from mileage.gateway.config import ServerConfig
from mileage.gateway.origins import Origins
from mileage.gateway.refusals import Refusal


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        pytest.param(b"127.0.0.1:8080", None, None, id="curl"),
        pytest.param(b"localhost:8080", None, None, id="localhost"),
        pytest.param(b"[::1]:8080", None, None, id="IPv6"),
        pytest.param(b"10.0.0.7:8080", None, None, id="an address is no name to rebind"),
        pytest.param(b"a.localhost", None, None, id="below localhost"),
        pytest.param(b"gpu-1:8080", None, None, id="a name that is allowed"),
        pytest.param(None, None, None, id="HTTP/1.0 without Host"),
        pytest.param(b"evil.example", None, 421, id="a name that was rebound"),
        pytest.param(b"localhost.evil.example:8080", None, 421, id="a name that looks like ours"),
        pytest.param(b"", None, 421, id="empty"),
        pytest.param(b"127.0.0.1:8080", b"https://evil.example", 403, id="a page of any site"),
        pytest.param(b"127.0.0.1:8080", b"null", 403, id="a page without an origin"),
        pytest.param(b"127.0.0.1:8080", b"http://127.0.0.1:8080", None, id="same origin"),
        pytest.param(b"127.0.0.1:8080", b"https://chat.example", None, id="a page that is allowed"),
    ],
)
def test_where_no_key_is_needed(
    host: bytes | None, origin: bytes | None, status: int | None
) -> None:
    config = ServerConfig(cors_origins=("https://chat.example",), allowed_hosts=("GPU-1",))
    origins = Origins(config, keys=False)
    assert origins.guarded
    for _ in range(2):  # what was found is remembered
        if status is None:
            origins.check(host, origin)
        else:
            with pytest.raises(Refusal) as refusal:
                origins.check(host, origin)
            assert refusal.value.status == status


@pytest.mark.parametrize(
    ("host", "keys"),
    [
        pytest.param("127.0.0.1", True, id="keys keep others out"),
        pytest.param("0.0.0.0", False, id="open to all by the operator's word"),
    ],
)
def test_elsewhere_names_and_pages_are_free(host: str, keys: bool) -> None:
    assert not Origins(ServerConfig(host=host, allow_no_keys=True), keys=keys).guarded


def test_many_names_of_hosts_are_not_all_remembered() -> None:
    origins = Origins(ServerConfig(), keys=False)
    for number in range(5000):
        origins.check(b"127.0.0.1:%d" % number, None)
    assert len(origins._hosts_seen) <= 1024


def test_cors_lines_name_only_an_allowed_origin() -> None:
    origins = Origins(ServerConfig(cors_origins=("https://a",)), keys=True)
    assert b"https://a\r\n" in origins.lines(b"https://a")
    assert origins.lines(b"https://b") == origins.lines(None) == b""
    assert b"https://b\r\n" in Origins(ServerConfig(cors_origins=("*",)), keys=True).lines(
        b"https://b"
    )
