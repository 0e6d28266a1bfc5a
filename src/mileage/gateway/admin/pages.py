"""Pages of the admin plane: the dashboard, its files, and logging in and out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from mileage.gateway.admin.responses import error, json
from mileage.gateway.admin.security import Gatekeeper

__all__ = ["Pages"]

_FORM_BYTES_MAX = 4096
_FORM_FIELDS_MAX = 8
_FORM_TIMEOUT_S = 10.0
_LOGIN_ERROR = b'<p class="login-error" role="alert">That token is not valid.</p>'
_LOGIN_ERROR_PLACE = b"<!-- error -->"
_CONTENT_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class Pages:
    """The routes that a browser opens. `assets` are files by name.

    A browser shows its token once, in the query of / or in the login form, and gets a cookie. The
    token does not stay in the address: there it would be in the history and in screenshots.
    """

    def __init__(self, assets: Mapping[str, bytes], gatekeeper: Gatekeeper) -> None:
        self._assets, self._gatekeeper = assets, gatekeeper

    def routes(self) -> list[Route]:
        """The routes, for the application's router."""
        return [
            Route("/", self._index, methods=["GET"]),
            Route("/cost", self._cost, methods=["GET"]),
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/api/v1/session", self._session, methods=["GET"]),
            Route("/assets/{name}", self._asset, methods=["GET"]),
        ]

    async def _index(self, request: Request) -> Response:
        token = request.query_params.get("token")
        if token is not None:
            return self._logged_in() if self._gatekeeper.token_valid(token) else _redirect("/login")
        if not self._gatekeeper.cookie_valid(request.headers):
            return _redirect("/login")
        return self._file("index.html")

    async def _cost(self, request: Request) -> Response:
        if not self._gatekeeper.cookie_valid(request.headers):
            return _redirect("/login")
        return self._file("cost.html")

    async def _login_page(self, request: Request) -> Response:
        if self._gatekeeper.cookie_valid(request.headers):
            return _redirect("/")
        return self._file("login.html")

    async def _login(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(_FORM_TIMEOUT_S):
                body = await _body(request)
        except (TimeoutError, ClientDisconnect):
            return error(408, "The form did not arrive in time.", code="timeout", param="body")
        if body is None:
            return error(413, "The form is too large.", code="too_large", param="body")
        try:
            fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_FORM_FIELDS_MAX)
        except ValueError:
            return error(400, "The form has too many fields.", code="invalid_value", param="body")
        token = fields.get("token", [""])[0].strip()
        if self._gatekeeper.token_valid(token):
            return self._logged_in()
        page = self._assets["login.html"].replace(_LOGIN_ERROR_PLACE, _LOGIN_ERROR)
        return Response(page, 401, media_type="text/html")

    async def _logout(self, request: Request) -> Response:
        response = _redirect("/login")
        response.headers["set-cookie"] = self._gatekeeper.cookie(clear=True)
        return response

    async def _healthz(self, request: Request) -> Response:
        return json({"status": "ok"})

    async def _session(self, request: Request) -> Response:
        """Whether the browser is logged in: a link from elsewhere opens the page without it.

        The cookie is SameSite=Strict, so it is not sent with the first request after a link on
        another site; the login page asks here and goes on by itself.
        """
        return json({"authenticated": self._gatekeeper.cookie_valid(request.headers)})

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._assets or name.endswith(".html"):
            return error(404, "There is no such file.", code="not_found", param="name")
        return self._file(name)

    def _logged_in(self) -> Response:
        response = _redirect("/")
        response.headers["set-cookie"] = self._gatekeeper.cookie()
        return response

    def _file(self, name: str) -> Response:
        content_type = _CONTENT_TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return Response(self._assets[name], headers={"content-type": content_type})


async def _body(request: Request) -> bytes | None:
    """The request's body, or None if it is larger than a login form can be."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM_BYTES_MAX:
            return None
    return body


def _redirect(path: str) -> Response:
    return Response(status_code=303, headers={"location": path})
