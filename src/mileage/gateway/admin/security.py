"""Security of the admin plane: who may ask, from which page, under which host name."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mileage.gateway.admin.config import AdminConfig
from mileage.gateway.admin.responses import error

__all__ = ["Gatekeeper", "SecurityMiddleware"]

_LOG = logging.getLogger(__name__)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_COOKIE_AGE_S = 7 * 24 * 3600
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it a browser sends our own forms with "Origin: null".
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Gatekeeper:
    """Checks of one request's headers.

    The browser's cookie holds a value derived from the token, not the token: a stolen cookie gives
    this plane away but not the secret, which may be in use elsewhere. Its name is derived too,
    because cookies do not tell ports apart and two gateways may run on one machine.
    """

    def __init__(self, config: AdminConfig, token: str) -> None:
        self._config = config
        self._token = token.encode("ascii")
        self._session = self._derive(b"session")
        self._cookie_name = f"mileage_admin_{self._derive(b'name')[:8]}"
        self._names = {"localhost", *(name.lower() for name in config.allowed_hosts)}
        if not config.is_loopback:
            self._names.add(config.host.lower())
        self.failures = 0

    def token_valid(self, token: str) -> bool:
        """Compare in constant time; a failure is counted."""
        valid = hmac.compare_digest(token.encode("utf-8", "replace"), self._token)
        if not valid:
            self.failures += 1
        return valid

    def bearer_valid(self, headers: Headers) -> bool:
        """The Authorization header carries the token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.token_valid(token.strip())

    def cookie_valid(self, headers: Headers) -> bool:
        """The browser has logged in with the token that is valid now."""
        # Not http.cookies: it gives up at the first odd cookie, and one machine's name shares its
        # cookies between all that listens there.
        session = self._session.encode()
        for pair in headers.get("cookie", "").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self._cookie_name:
                return hmac.compare_digest(value.encode("utf-8", "replace"), session)
        return False

    def cookie(self, *, clear: bool = False) -> str:
        """The Set-Cookie header that logs a browser in, or out."""
        value, age_s = ("", 0) if clear else (self._session, _COOKIE_AGE_S)
        secure = "; Secure" if self._config.tls_cert is not None else ""
        cookie = f"{self._cookie_name}={value}; Path=/; Max-Age={age_s}"
        return f"{cookie}; HttpOnly; SameSite=Strict{secure}"

    def host_allowed(self, host: str | None) -> bool:
        """A foreign name that resolves to this machine (DNS rebinding) is not allowed.

        On a loopback address only loopback names are; elsewhere any IP address is, since a page of
        another site cannot have an address of ours as its own name.
        """
        name = _host_name(host)
        if name is None:
            return False
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._config.is_loopback

    @staticmethod
    def origin_same(headers: Headers) -> bool:
        """The browser says that a page of this very server sends the request."""
        origin, host = headers.get("origin"), headers.get("host")
        if origin is None or host is None:
            return False
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()

    def _derive(self, purpose: bytes) -> str:
        return hmac.new(self._token, b"mileage admin " + purpose, hashlib.sha256).hexdigest()


class SecurityMiddleware:
    """Lets a request through to `app` if it may pass; adds the security headers to every answer.

    What is not in `public` (paths) or below `public_prefix` needs the token. A request that changes
    something needs the Bearer header, or the cookie and an Origin of our own. Logs what the app
    raises.
    """

    def __init__(
        self, app: ASGIApp, gatekeeper: Gatekeeper, *, public: frozenset[str], public_prefix: str
    ) -> None:
        self._app, self._gatekeeper = app, gatekeeper
        self._public, self._public_prefix = public, public_prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            await (self._refusal(scope) or self._app)(scope, receive, send_secured)
        except Exception:
            # The app has answered with 500, or has broken off an answer; here ends what it raised.
            _LOG.exception("admin plane: %s %s failed", scope["method"], scope["path"])

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers, path = Headers(scope=scope), scope["path"]
        if not self._gatekeeper.host_allowed(headers.get("host")):
            return error(
                421,
                "This host name is not served; add it to admin.allowed_hosts if it is yours.",
                code="host_not_allowed",
                param="Host",
            )
        changes = scope["method"] not in _SAFE_METHODS
        if path in self._public or path.startswith(self._public_prefix):
            # Logging in needs no token, but a foreign page must not do it (or log out) either.
            foreign = "origin" in headers and not self._gatekeeper.origin_same(headers)
            return _foreign_origin() if changes and foreign else None
        if "authorization" in headers:
            return None if self._gatekeeper.bearer_valid(headers) else _unauthenticated()
        if not self._gatekeeper.cookie_valid(headers):
            return _unauthenticated()
        if changes and not self._gatekeeper.origin_same(headers):
            return _foreign_origin()
        return None


def _unauthenticated() -> ASGIApp:
    return error(
        401,
        "The admin token is missing or wrong: send it as 'Authorization: Bearer TOKEN'.",
        code="invalid_token",
        param="Authorization",
        headers={"www-authenticate": "Bearer"},
    )


def _foreign_origin() -> ASGIApp:
    return error(
        403,
        "A change from a browser must come from a page of this server.",
        code="foreign_origin",
        param="Origin",
    )


def _host_name(host: str | None) -> str | None:
    """The name in a Host header, lower case, without port and brackets; None if it is malformed."""
    if not host or any(character in host for character in "/@?#\\ "):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname
