"""Origins: which web pages may call, and what their browsers are told (CORS)."""

from __future__ import annotations

import ipaddress

from mileage.gateway.config import ServerConfig
from mileage.gateway.refusals import Refusal

__all__ = ["Origins"]

_SEEN_MAX = 1024


class Origins:
    """Checks Host and Origin, and writes CORS lines.

    Where no key is needed, being on this machine is all that admits a caller, and a browser on it
    must not lend that to any web page: `guarded` requests are refused if they come from a page of
    an origin that is not configured, or were sent to a foreign name (DNS rebinding).
    """

    __slots__ = ("_allowed_hosts", "_cors", "_hosts_seen", "guarded")

    def __init__(self, config: ServerConfig, *, keys: bool) -> None:
        self._cors = {origin.encode() for origin in config.cors_origins}
        self._allowed_hosts = {host.lower().encode() for host in config.allowed_hosts}
        self._hosts_seen: set[bytes] = set()
        self.guarded = not keys and config.loopback

    @property
    def cors(self) -> bool:
        """Some origin is allowed."""
        return bool(self._cors)

    def check(self, host: bytes | None, origin: bytes | None) -> None:
        """Refuse a request of a page, or to a name, that is none of ours. Only if `guarded`."""
        if host is not None and host not in self._hosts_seen:
            self._check_host(host)
        if origin is None or origin in self._cors or b"*" in self._cors:
            return
        if host is None or origin.partition(b"://")[2] != host:
            raise Refusal(403, "this origin is not in server.cors_origins", code="origin")

    def lines(self, origin: bytes | None) -> bytes:
        """Header lines that let the page of `origin` read the answer; b'' where it may not."""
        if origin is None or not (origin in self._cors or b"*" in self._cors):
            return b""
        return (
            b"access-control-allow-origin: %b\r\nvary: origin\r\n"
            b"access-control-expose-headers: x-request-id, retry-after\r\n" % origin
        )

    def _check_host(self, host: bytes) -> None:
        name = host.lower()
        if name.startswith(b"["):
            name = name[1:].partition(b"]")[0]
        elif name.count(b":") == 1:
            name = name.partition(b":")[0]
        if name not in self._allowed_hosts and name != b"localhost":
            try:
                ipaddress.ip_address(name.decode("ascii"))
            except (ValueError, UnicodeDecodeError):
                if not name.endswith(b".localhost"):
                    message = "this Host is neither an address nor in server.allowed_hosts"
                    raise Refusal(421, message, code="host") from None
        if len(self._hosts_seen) < _SEEN_MAX:
            self._hosts_seen.add(host)
