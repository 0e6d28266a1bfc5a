"""ControlFault: why an engine's control gave no document; a value, since traffic goes on."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = ["ControlFault", "FaultKind"]

FaultKind: TypeAlias = Literal[
    "unreachable", "timeout", "wrong_token", "absent", "refused", "engine_error"
]
"""unreachable: no connection; timeout: no answer in time; wrong_token: 401 or 403; absent: there is
no control (404, or an answer that is none); refused: 400; engine_error: 5xx."""


class ControlFault(msgspec.Struct, frozen=True):
    """What went wrong with one request, for people in `message`."""

    kind: FaultKind
    message: str
