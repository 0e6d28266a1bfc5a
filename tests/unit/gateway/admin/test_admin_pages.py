"""A browser logs in once, by link or by form, and its token stays nowhere in sight."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from mileage.gateway.admin.config import AdminConfig
from tests.support.admin_plane import TOKEN, AdminPlane
from tests.support.asgi import Answer, scope_of


def post_form(plane: AdminPlane, body: bytes, *, origin: str = "") -> Answer:
    headers = {"origin": origin, "content-type": "application/x-www-form-urlencoded"}
    return plane.call("/login", method="POST", headers=headers, body=body, token=None)


def test_a_link_with_the_token_logs_in_and_drops_it_from_the_address() -> None:
    plane = AdminPlane()
    answer = plane.call(f"/?token={TOKEN}", token=None)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    assert TOKEN not in cookie
    page = plane.call("/", headers={"cookie": plane.cookie()}, token=None)
    assert (page.status, page.body) == (200, b"<h1>dashboard</h1>")


def test_over_tls_the_cookie_is_secure() -> None:
    plane = AdminPlane(AdminConfig(tls_cert="c.pem", tls_key="k.pem"))
    assert plane.call(f"/?token={TOKEN}", token=None).headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize("target", ["/", "/?token=wrong-token-of-some-length", "/?token="])
def test_without_the_token_the_dashboard_leads_to_the_login(target: str) -> None:
    answer = AdminPlane().call(target, token=None)
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    assert "set-cookie" not in answer.headers


def test_the_form_logs_in() -> None:
    plane = AdminPlane()
    answer = post_form(plane, f"token=+{TOKEN}+".encode(), origin="http://localhost:8081")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    headers = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert plane.call("/", headers=headers, token=None).status == 200
    assert plane.call("/login", headers=headers, token=None).headers["location"] == "/"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"token=wrong-token-of-some-length", 401, id="a wrong token"),
        pytest.param(b"", 401, id="an empty form"),
        pytest.param(b"\xff\xfe=%ff&token=%ff", 401, id="no text"),
        pytest.param(b"&".join([b"a=b"] * 100), 400, id="too many fields"),
        pytest.param(b"token=" + b"x" * 5000, 413, id="too large"),
    ],
)
def test_a_bad_form_does_not_log_in(body: bytes, status: int) -> None:
    answer = post_form(AdminPlane(), body)
    assert answer.status == status
    assert "set-cookie" not in answer.headers


def test_the_login_page_says_what_was_wrong() -> None:
    plane = AdminPlane()
    assert b"not valid" not in plane.call("/login", token=None).body
    assert b"not valid" in post_form(plane, b"token=wrong").body


def test_another_site_can_neither_log_in_nor_out() -> None:
    plane = AdminPlane()
    evil = "http://evil.example"
    assert post_form(plane, f"token={TOKEN}".encode(), origin=evil).status == 403
    headers = {"cookie": plane.cookie(), "origin": evil}
    assert plane.call("/logout", method="POST", headers=headers, token=None).status == 403


def test_logging_out_takes_the_cookie_back() -> None:
    plane = AdminPlane()
    headers = {"cookie": plane.cookie(), "origin": "http://localhost:8081"}
    answer = plane.call("/logout", method="POST", headers=headers, token=None)
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_the_login_page_can_ask_whether_it_is_needed() -> None:
    plane = AdminPlane()
    asked = plane.call("/api/v1/session", token=None).json()
    known = plane.call("/api/v1/session", headers={"cookie": plane.cookie()}, token=None).json()
    assert (asked, known) == ({"authenticated": False}, {"authenticated": True})


@pytest.mark.parametrize(
    ("name", "content_type"),
    [("main.js", "text/javascript; charset=utf-8"), ("dashboard.css", "text/css; charset=utf-8")],
)
def test_the_pages_files_need_no_token(name: str, content_type: str) -> None:
    answer = AdminPlane().call(f"/assets/{name}", token=None)
    assert (answer.status, answer.headers["content-type"]) == (200, content_type)


@pytest.mark.parametrize(
    "path",
    [
        "/assets/index.html",
        "/assets/none.js",
        "/assets/../index.html",
        "/assets/%2e%2e%2findex.html",
        "/assets/",
    ],
)
def test_nothing_else_is_a_file(path: str) -> None:
    assert AdminPlane().call(path, token=None).status == 404


def test_a_form_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mileage.gateway.admin.pages._FORM_TIMEOUT_S", 0.001)
    plane, messages = AdminPlane(), list[Message]()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        messages.append(message)

    scope = scope_of("POST", "/login", {})
    asyncio.run(asyncio.wait_for(plane.app(scope, receive, send), 60))
    assert messages[0]["status"] == 408
