"""The name by which an engine is told a request of a gateway, and the request that a name tells."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["CLIENT_NAME_MAX", "NamedRequest", "gateway_tag", "read_request_name", "request_name"]

CLIENT_NAME_MAX: Final = 128
"""Of a client's own name for its request so many bytes are in the engine's."""
_TAG_DIGITS: Final = 8
# Engines put words before a name (chatcmpl-) and numbers behind it (-0-1f2e3d4c).
_name = re.compile(r"(?<![0-9A-Za-z])req-([0-9a-f]{1,16})\.([0-9a-f]{8})(?![0-9A-Za-z])")


class NamedRequest(NamedTuple):
    """A request of a gateway."""

    tag: str
    """Of the gateway: see gateway_tag."""
    request_id: int


def gateway_tag(identity: str) -> str:
    """What tells gateways apart in names of requests: the beginning of a gateway's identity."""
    return identity[:_TAG_DIGITS]


def request_name(request_id: int, tag: str, client: bytes = b"") -> bytes:
    """What the engine is to call the request: `req-18a3f.1b2c3d4e`, after the name that the client
    has for it, if any, so that an engine's log can be searched for either."""
    ours = b"req-%x.%b" % (request_id, tag.encode())
    return b"%b.%b" % (client[:CLIENT_NAME_MAX], ours) if client else ours


def read_request_name(name: str) -> NamedRequest | None:
    """The request that an engine's name for one of its own means: the last that is in it, as what
    the client called it stands before. None: it is no gateway's."""
    found = _name.findall(name)
    if not found:
        return None
    number, tag = found[-1]
    return NamedRequest(tag, int(number, 16))
