"""SecretMask: what an engine prints without the keys it was given: some log their arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["SecretMask"]

_LENGTH_MIN: Final = 8
"""Shorter ones stand in other words, too."""
_INSTEAD: Final = b"***"


class SecretMask:
    """Takes in bytes that may be cut anywhere, and gives them back with *** in each secret's place.

    What may be the beginning of a secret is kept back until more comes.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {text.encode() for text in secrets if len(text) >= _LENGTH_MIN}
        self._secrets = sorted(found, key=len, reverse=True)
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown by now."""
        if not self._secrets:
            return data
        data = self._rest + data
        for secret in self._secrets:
            data = data.replace(secret, _INSTEAD)
        kept = max(_begun(data, secret) for secret in self._secrets)
        self._rest = data[len(data) - kept :]
        return data[: len(data) - kept]

    def end(self) -> bytes:
        """What was kept back: nothing follows."""
        rest, self._rest = self._rest, b""
        return rest


def _begun(data: bytes, secret: bytes) -> int:
    """How many of the last bytes may be the beginning of the secret."""
    for count in range(min(len(secret) - 1, len(data)), 0, -1):
        if data.endswith(secret[:count]):
            return count
    return 0
