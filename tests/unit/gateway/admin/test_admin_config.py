"""The admin plane's configuration refuses what would open it by mistake."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.gateway.admin.config import AdminConfig, check_token

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize(
    ("values", "key"),
    [
        pytest.param({"host": "0.0.0.0"}, "admin.host", id="all addresses, not allowed"),
        pytest.param({"host": "::"}, "admin.host", id="all IPv6 addresses, not allowed"),
        pytest.param({"host": "10.0.0.5"}, "admin.host", id="an address of a network"),
        pytest.param({"host": "gateway.example"}, "admin.host", id="a name is taken for remote"),
        pytest.param({"host": ""}, "admin.host", id="no host"),
        pytest.param({"port": 65_536}, "admin.port", id="no such port"),
        pytest.param({"subscribers_max": 0}, "admin.subscribers_max", id="no dashboard at all"),
        pytest.param({"connections_max": 1}, "admin.connections_max", id="too few connections"),
        pytest.param({"token": "short"}, "admin.token", id="a token that can be guessed"),
        pytest.param({"token": "with a space in it!"}, "admin.token", id="a token with spaces"),
        pytest.param({"token": "ä" * 20}, "admin.token", id="a token that no header can carry"),
        pytest.param(
            {"token": TOKEN, "token_file": "f"}, "admin.token_file", id="two sources of the token"
        ),
        pytest.param({"tls_cert": "c.pem"}, "admin.tls_key", id="a certificate without its key"),
        pytest.param(
            {"allowed_hosts": ("http://x",)}, "admin.allowed_hosts", id="a URL instead of a name"
        ),
        pytest.param(
            {"allowed_hosts": ("x:8081",)}, "admin.allowed_hosts", id="a name with a port"
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AdminConfig(**values)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        pytest.param("127.0.0.1", True, id="the loopback address"),
        pytest.param("127.9.9.9", True, id="any address of 127/8"),
        pytest.param("::1", True, id="the IPv6 loopback address"),
        pytest.param("[::1]", True, id="in brackets"),
        pytest.param("LocalHost", True, id="the name"),
        pytest.param("0.0.0.0", False, id="all addresses"),
        pytest.param("localhost.example", False, id="another name"),
    ],
)
def test_loopback_is_told_from_remote(host: str, loopback: bool) -> None:
    assert AdminConfig(host=host, allow_remote=True).is_loopback is loopback


def test_a_token_is_never_shown() -> None:
    assert TOKEN not in repr(AdminConfig(token=TOKEN))
    assert "port=8081" in repr(AdminConfig(token=TOKEN))
    with pytest.raises(ConfigError) as caught:
        check_token("admin.token", "pass word of mine")
    assert "pass word" not in str(caught.value)
