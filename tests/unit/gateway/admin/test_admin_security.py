"""Who gets in: token, cookie, host name and origin; and what every answer carries."""

from __future__ import annotations

import logging

import pytest

from mileage.gateway.admin.config import AdminConfig
from tests.support.admin_plane import TOKEN, AdminPlane

REMOTE = AdminConfig(host="0.0.0.0", allow_remote=True)
PROTECTED = [
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/replicas"),
    ("GET", "/api/v1/series"),
    ("GET", "/api/v1/config"),
    ("GET", "/api/v1/events"),
    ("POST", "/api/v1/drain"),
    ("POST", "/api/v1/replicas/a/enable"),
    ("POST", "/api/v1/replicas/a/disable"),
    ("GET", "/no/such/path"),
    ("GET", "//api/v1/status"),
    ("GET", "/assets"),
]


@pytest.mark.parametrize(("method", "path"), PROTECTED)
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"authorization": "Bearer wrong-token-of-length"}, id="a wrong token"),
        pytest.param({"authorization": "Bearer "}, id="an empty token"),
        pytest.param({"authorization": f"Bearer {TOKEN}x"}, id="a longer token"),
        pytest.param({"authorization": f"Basic {TOKEN}"}, id="another scheme"),
        pytest.param({"authorization": "Bearer \xe4"}, id="no ASCII"),
        pytest.param({"cookie": f"token={TOKEN}"}, id="the token as a cookie"),
    ],
)
def test_without_the_token_nothing_is_told(method: str, path: str, headers: dict[str, str]) -> None:
    plane = AdminPlane()
    answer = plane.call(path, method=method, headers=headers, token=None)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["type"] == "authentication_error"
    assert plane.fleet.drains == 0


def test_the_token_in_a_query_opens_no_api() -> None:
    plane = AdminPlane()
    assert plane.call(f"/api/v1/status?token={TOKEN}", token=None).status == 401


def test_the_bearer_token_opens_the_api() -> None:
    plane = AdminPlane()
    assert plane.call("/api/v1/status").status == 200
    assert plane.call("/api/v1/drain", method="POST").status == 202
    assert plane.fleet.drains == 1


def test_wrong_tokens_are_counted() -> None:
    plane = AdminPlane()
    for _ in range(3):
        plane.call("/api/v1/status", token="wrong-token-of-some-length")
    text = plane.call("/metrics").body.decode()
    assert "\nmileage_admin_auth_failures_total 3.0\n" in text


@pytest.mark.parametrize(
    ("config", "host", "allowed"),
    [
        pytest.param(AdminConfig(), "localhost:8081", True, id="localhost"),
        pytest.param(AdminConfig(), "LOCALHOST", True, id="localhost without a port"),
        pytest.param(AdminConfig(), "127.0.0.1:9999", True, id="the address, through a tunnel"),
        pytest.param(AdminConfig(), "[::1]:8081", True, id="the IPv6 address"),
        pytest.param(AdminConfig(), "evil.example", False, id="a foreign name"),
        pytest.param(AdminConfig(), "localhost.evil.example", False, id="a name that begins well"),
        pytest.param(AdminConfig(), "10.0.0.5", False, id="a remote address at a loopback socket"),
        pytest.param(AdminConfig(), "127.0.0.1.evil.example", False, id="an address in a name"),
        pytest.param(AdminConfig(), "localhost:80@evil.example", False, id="user information"),
        pytest.param(AdminConfig(), "localhost:99999", False, id="an impossible port"),
        pytest.param(AdminConfig(), "[::1", False, id="half a bracket"),
        pytest.param(AdminConfig(), "", False, id="no host at all"),
        pytest.param(REMOTE, "10.0.0.5:8081", True, id="an address of a remote socket"),
        pytest.param(REMOTE, "localhost:8081", True, id="localhost at a remote socket"),
        pytest.param(REMOTE, "evil.example", False, id="a foreign name at a remote socket"),
        pytest.param(
            AdminConfig(allowed_hosts=("Admin.Example",)),
            "admin.example:443",
            True,
            id="a configured name",
        ),
    ],
)
def test_only_known_host_names_are_served(config: AdminConfig, host: str, allowed: bool) -> None:
    plane = AdminPlane(config)
    answer = plane.call("/api/v1/status", headers={"host": host})
    assert answer.status == (200 if allowed else 421)
    assert plane.call("/healthz", headers={"host": host}).status == answer.status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        pytest.param("http://localhost:8081", 202, id="our own page"),
        pytest.param("http://LOCALHOST:8081", 202, id="our own page, in capitals"),
        pytest.param("", 403, id="no origin"),
        pytest.param("null", 403, id="a page without an origin"),
        pytest.param("http://evil.example", 403, id="another site"),
        pytest.param("http://localhost:8082", 403, id="another port"),
        pytest.param("http://localhost:8081.evil.example", 403, id="a name that begins well"),
        pytest.param("ftp://localhost:8081", 403, id="another scheme"),
    ],
)
def test_a_browser_changes_something_only_from_our_own_page(origin: str, status: int) -> None:
    plane = AdminPlane()
    headers = {"cookie": plane.cookie(), "origin": origin}
    answer = plane.call("/api/v1/drain", method="POST", headers=headers, token=None)
    assert answer.status == status
    assert plane.fleet.drains == (1 if status == 202 else 0)


def test_the_cookie_reads_without_an_origin() -> None:
    plane = AdminPlane()
    headers = {"cookie": plane.cookie()}
    assert plane.call("/api/v1/status", headers=headers, token=None).status == 200


def test_a_wrong_bearer_token_is_not_saved_by_a_good_cookie() -> None:
    plane = AdminPlane()
    headers = {"cookie": plane.cookie()}
    assert plane.call("/api/v1/status", headers=headers, token="x" * 20).status == 401


@pytest.mark.parametrize(
    "cookies",
    [
        pytest.param("{cookie}", id="alone"),
        pytest.param('other={{"a": "b, c"}}; {cookie}; x', id="among odd ones of other servers"),
        pytest.param("=; ;;{cookie}", id="after nonsense"),
    ],
)
def test_the_cookie_is_found_among_others(cookies: str) -> None:
    plane = AdminPlane()
    headers = {"cookie": cookies.format(cookie=plane.cookie())}
    assert plane.call("/api/v1/status", headers=headers, token=None).status == 200


def test_a_forged_cookie_is_refused() -> None:
    plane = AdminPlane()
    name = plane.cookie().partition("=")[0]
    for value in ("", "x", TOKEN, "\xff"):
        headers = {"cookie": f"{name}={value}"}
        assert plane.call("/api/v1/status", headers=headers, token=None).status == 401


@pytest.mark.parametrize(
    ("config", "status"),
    [
        pytest.param(AdminConfig(), 200, id="on a loopback address"),
        pytest.param(REMOTE, 401, id="on a remote address"),
        pytest.param(
            AdminConfig(host="0.0.0.0", allow_remote=True, metrics_public=True),
            200,
            id="on a remote address, made public",
        ),
    ],
)
def test_metrics_need_the_token_where_others_can_ask(config: AdminConfig, status: int) -> None:
    plane = AdminPlane(config)
    assert plane.call("/metrics", token=None).status == status
    assert plane.call("/metrics").status == 200


@pytest.mark.parametrize(
    "path", ["/", "/login", "/healthz", "/metrics", "/assets/main.js", "/api/v1/status", "/nothing"]
)
def test_every_answer_has_the_security_headers(path: str) -> None:
    headers = AdminPlane().call(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"


def test_an_error_of_ours_is_a_500_that_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plane = AdminPlane()

    def broken() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(plane.fleet, "config_public", broken)
    with caplog.at_level(logging.ERROR):
        answer = plane.call("/api/v1/config")
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret detail" in caplog.text
    assert answer.headers["x-frame-options"] == "DENY"
