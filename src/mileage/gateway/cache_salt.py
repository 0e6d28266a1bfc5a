"""CacheSalts: a secret of each tenant for an engine's prefix cache, so that none sees another's."""

from __future__ import annotations

import hmac
from typing import Final

import msgspec
from msgspec import Raw

__all__ = ["CacheSaltSettings", "CacheSalts"]

_KEPT_MAX: Final = 10_000
_SALT_CHARS: Final = 32
_fields = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


class CacheSaltSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What salts are made with. The key is shown nowhere: who has it can guess them."""

    key: str
    unsalted: frozenset[str] = frozenset()
    """Tenants that share what is cached with one another."""

    def __repr__(self) -> str:
        return f"CacheSaltSettings({len(self.unsalted)} unsalted)"


class CacheSalts:
    """The field `cache_salt` of a tenant's requests, as vLLM takes it.

    vLLM finds a prompt's blocks in its cache only under the salt that they were computed with.
    Without one a tenant can measure whether another has sent a prompt before: what is cached
    answers sooner. The salt is an HMAC of the tenant's name, so that no client can name another's;
    one that a client sends itself parts its own tenant's cache further.
    """

    def __init__(self, settings: CacheSaltSettings) -> None:
        self._key = settings.key.encode()
        self._unsalted = settings.unsalted
        self._kept: dict[str, bytes] = {}

    def salts(self, tenant: str) -> bool:
        """Whether the tenant shares nothing that is cached."""
        return tenant not in self._unsalted

    def put(self, raw: bytes, tenant: str) -> bytes:
        """The body with the tenant's salt, whatever the client wrote there."""
        if b"cache_salt" not in raw and b"\\u" not in raw:
            return b'{"cache_salt":"%b",%b' % (self._of(tenant), raw[raw.index(b"{") + 1 :])
        fields = _fields.decode(raw)
        theirs = bytes(fields.pop("cache_salt", b"null"))
        salt = self._of(tenant) if theirs == b"null" else self._made(tenant, theirs)
        return _encode({"cache_salt": salt.decode(), **fields})

    def _of(self, tenant: str) -> bytes:
        salt = self._kept.get(tenant)
        if salt is None:
            salt = self._made(tenant, b"")
            if len(self._kept) < _KEPT_MAX:
                self._kept[tenant] = salt
        return salt

    def _made(self, tenant: str, theirs: bytes) -> bytes:
        name = tenant.encode()
        message = b"cache_salt\n%d\n%b%b" % (len(name), name, theirs)
        return hmac.new(self._key, message, "sha256").hexdigest()[:_SALT_CHARS].encode()
