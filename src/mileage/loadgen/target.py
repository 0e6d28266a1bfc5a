"""Target: a server under load, and what lets a client in."""

from __future__ import annotations

import re

import msgspec

from mileage.core.errors import ConfigError
from mileage.wire.url import basic_authorization, display_url, origin

__all__ = ["Target"]

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where calls go. Raises ConfigError for what could not be asked."""

    url: str
    """Such as http://127.0.0.1:8000 or https://host/prefix; a call's path follows its own."""
    name: str = ""
    """For people; empty: the URL without its credentials."""
    authorization: str | None = None
    """Value of the Authorization header, such as 'Bearer KEY'; None: the URL's credentials."""
    verify: bool = True
    """Over https: accept only a certificate that is valid for the host."""

    def __post_init__(self) -> None:
        try:
            origin(self.url)
        except ValueError:
            expected = "http:// or https:// with a host"
            raise ConfigError("url", display_url(self.url), expected) from None
        if self.authorization is not None and not _HEADER_VALUE.fullmatch(self.authorization):
            raise ConfigError("authorization", "a value", "text without line ends, in Latin-1")

    @property
    def shown(self) -> str:
        """What people call it by; holds no credentials."""
        return self.name or display_url(self.url)

    @property
    def authorization_value(self) -> str | None:
        """The Authorization header that its calls carry."""
        return self.authorization or basic_authorization(self.url)
