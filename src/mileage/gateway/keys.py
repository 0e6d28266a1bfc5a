"""API keys: which tenant a request belongs to."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256

__all__ = ["KEY_PREFIX", "KeyRing", "key_hash", "new_key"]

DEFAULT_TENANT = "default"
KEY_PREFIX = "mlg-"
"""What every key that is made here begins with."""
_BEARER = b"bearer "


def new_key() -> str:
    """A new API key: 256 random bits."""
    return f"{KEY_PREFIX}{secrets.token_urlsafe(32)}"


def key_hash(key: str) -> str:
    """How a key is stored: 'sha256:' and the hex digest. Keys are random: no salt is needed."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


class KeyRing:
    """Knows the hashes of all keys; without any, every request belongs to the default tenant."""

    __slots__ = ("_tenants",)

    def __init__(self, key_hashes: Mapping[str, str]) -> None:
        self._tenants = {
            bytes.fromhex(digest.removeprefix("sha256:")): (
                bytes.fromhex(digest.removeprefix("sha256:")),
                tenant,
            )
            for digest, tenant in key_hashes.items()
        }

    def tenant(self, authorization: bytes | None, api_key: bytes | None) -> str | None:
        """The tenant of a request's `Authorization: Bearer` or `x-api-key`; None: not known."""
        if not self._tenants:
            return DEFAULT_TENANT
        if authorization is not None and (
            authorization.startswith(b"Bearer ") or authorization[:7].lower() == _BEARER
        ):
            key = authorization[7:].strip()
        elif api_key is not None:
            key = api_key
        else:
            return None
        digest = sha256(key).digest()
        found = self._tenants.get(digest)
        # The look-up compares hashes, whose bytes a caller cannot steer; the last word is
        # nevertheless a comparison in constant time.
        if found is not None and hmac.compare_digest(found[0], digest):
            return found[1]
        return None
