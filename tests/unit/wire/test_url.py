"""URLs of engines: what is shown, what is sent, what is refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.wire.url import authority, basic_authorization, display_url, origin, target


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("http://h:8000/v1", "http://h:8000/v1", id="nothing to hide"),
        pytest.param("http://u:secret@h/v1", "http://h/v1", id="credentials are left out"),
        pytest.param("http://u:se@cret@h", "http://h", id="also with an @ in the password"),
        pytest.param("https://h/m?key=secret#part", "https://h/m", id="query and fragment too"),
        pytest.param("http://h?key=secret", "http://h", id="a query right after the host"),
        pytest.param("u:secret@h", "h", id="credentials without a scheme"),
        pytest.param("h/m?key=secret#part", "h/m", id="a query without a scheme"),
    ],
)
def test_shown_without_secrets(url: str, shown: str) -> None:
    assert display_url(url) == shown


@given(st.text(max_size=40).filter(lambda text: "secret" not in text))
def test_any_text_can_be_shown(text: str) -> None:
    assert "secret" not in display_url(f"http://u:secret@{text}")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("http://h", ("http", "h", 80), id="default port of http"),
        pytest.param("https://h", ("https", "h", 443), id="default port of https"),
        pytest.param("http://H:8000/x", ("http", "h", 8000), id="host in lower case"),
        pytest.param("http://h:0", ("http", "h", 0), id="port 0 is not the default port"),
        pytest.param("http://[::1]:8000", ("http", "::1", 8000), id="IPv6"),
        pytest.param("http://my_host-1.x", ("http", "my_host-1.x", 80), id="underscore"),
        pytest.param("http://b\u00fccher.example", ("http", "xn--bcher-kva.example", 80), id="IDN"),
    ],
)
def test_origin(url: str, expected: tuple[str, str, int]) -> None:
    assert origin(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("", id="empty"),
        pytest.param("h:8000", id="no scheme"),
        pytest.param("ftp://h", id="another scheme"),
        pytest.param("http://", id="no host"),
        pytest.param("http://:80", id="only a port"),
        pytest.param("http://h:99999", id="port out of range"),
        pytest.param("http://h:x", id="port that is no number"),
        pytest.param("http://[::1", id="half an IPv6 address"),
        pytest.param("http://a b/", id="space in the host"),
        pytest.param("http://a..b/", id="empty label"),
        pytest.param("http://" + "a" * 64 + ".b/", id="label too long"),
        pytest.param("http://h\x00/", id="NUL in the host"),
    ],
)
def test_no_origin(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        origin(url)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        pytest.param("http://u:p@h/x", "h", id="without credentials and path"),
        pytest.param("http://h:8000", "h:8000", id="with its port"),
        pytest.param("http://[::1]:8000/", "[::1]:8000", id="IPv6 in brackets"),
    ],
)
def test_authority(url: str, host: str) -> None:
    assert authority(url) == host


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("http://h", "/", id="no path"),
        pytest.param("http://h/a b", "/a%20b", id="a space is encoded"),
        pytest.param("http://h/a%20b", "/a%20b", id="what is encoded stays"),
        pytest.param("http://h/x?a=1&b=\u00fc", "/x?a=1&b=%C3%BC", id="query"),
        pytest.param("http://h/x#part", "/x", id="a fragment is not sent"),
        pytest.param("http://h/a\r\nx: y", "/ax:%20y", id="line breaks cannot get in"),
    ],
)
def test_request_target(url: str, expected: str) -> None:
    assert target(url) == expected


def test_credentials_become_basic_authorization() -> None:
    value = basic_authorization("http://us%3Aer:p%40ss@h/")
    assert value is not None
    assert base64.b64decode(value.removeprefix("Basic ")) == b"us:er:p@ss"
    assert basic_authorization("http://h/") is None
