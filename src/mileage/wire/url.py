"""URLs of engines: their origin, their request line, and what of them may be shown."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote, unquote, urlsplit

__all__ = ["authority", "basic_authorization", "display_url", "origin", "target"]

_HOST = re.compile(r"[0-9A-Za-z._:%-]+")
_PORTS = {"http": 80, "https": 443}


def display_url(url: str) -> str:
    """The URL without credentials, query and fragment: fit for messages and logs."""
    scheme, separator, rest = re.split(r"[?#]", url, maxsplit=1)[0].partition("://")
    if not separator:
        return scheme.rpartition("@")[2]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host (in ASCII) and port. Raises ValueError for a URL not http(s) with a host."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("not http:// or https:// with a host")
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    host = parts.hostname if ":" in parts.hostname else parts.hostname.encode("idna").decode()
    if not _HOST.fullmatch(host):
        raise ValueError("no such host name is possible")
    return parts.scheme, host, port


def authority(url: str) -> str:
    """Host and, where the URL gives one, port, as in a Host header. Raises ValueError as origin."""
    _, host, port = origin(url)
    host = f"[{host}]" if ":" in host else host
    return host if urlsplit(url).port is None else f"{host}:{port}"


def target(url: str) -> str:
    """Path and query for the request line, percent-encoded where they must be."""
    parts = urlsplit(url)
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~?[]")
    return f"{path}?{query}" if query else path


def basic_authorization(url: str) -> str | None:
    """The value of an Authorization header for the URL's credentials, None where it has none."""
    parts = urlsplit(url)
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
