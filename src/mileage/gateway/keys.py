"""API keys: which tenant a request belongs to, and which of its keys it came with."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

__all__ = ["KEY_PREFIX", "Caller", "KeyRing", "key_hash", "new_key"]

DEFAULT_TENANT = "default"
KEY_PREFIX = "mlg-"
"""What every key that is made here begins with."""
_BEARER = b"bearer "
_NO_NAMES: Mapping[str, str] = {}


def new_key() -> str:
    """A new API key: 256 random bits."""
    return f"{KEY_PREFIX}{secrets.token_urlsafe(32)}"


def key_hash(key: str) -> str:
    """How a key is stored: 'sha256:' and the hex digest. Keys are random: no salt is needed."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


class Caller(NamedTuple):
    """Who a request is from: the tenant, and the name of its key where that has one."""

    tenant: str
    key: str | None = None


_ANYBODY = Caller(DEFAULT_TENANT)


class KeyRing:
    """Knows the hashes of all keys; without any, every request belongs to the default tenant.

    `key_hashes`: hash -> tenant; `key_names`: hash -> the key's name.
    """

    __slots__ = ("_callers",)

    def __init__(
        self, key_hashes: Mapping[str, str], key_names: Mapping[str, str] = _NO_NAMES
    ) -> None:
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        for text, tenant in key_hashes.items():
            digest = bytes.fromhex(text.removeprefix("sha256:"))
            self._callers[digest] = (digest, Caller(tenant, key_names.get(text)))

    def caller(self, authorization: bytes | None, api_key: bytes | None) -> Caller | None:
        """Who sent a request with this `Authorization: Bearer` or `x-api-key`; None: not known."""
        if not self._callers:
            return _ANYBODY
        if authorization is not None and (
            authorization.startswith(b"Bearer ") or authorization[:7].lower() == _BEARER
        ):
            key = authorization[7:].strip()
        elif api_key is not None:
            key = api_key
        else:
            return None
        digest = sha256(key).digest()
        found = self._callers.get(digest)
        # The look-up compares hashes, whose bytes a caller cannot steer; the last word is
        # nevertheless a comparison in constant time.
        if found is not None and hmac.compare_digest(found[0], digest):
            return found[1]
        return None
