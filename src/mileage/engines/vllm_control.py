"""VllmControl: asks /mileage/control of a vLLM with the plugin; whatever comes of it is a value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.policy.control_fault import ControlFault, FaultKind
from mileage.policy.engine_knobs import ControlDocument
from mileage.wire.fetch import FetchError, FetchResponse, fetch

__all__ = ["ControlAccess", "VllmControl"]

_PATH: Final = "/mileage/control"
_SAID_MAX: Final = 200
_HINT: Final = "start vLLM with VLLM_PLUGINS=mileage and MILEAGE_CONTROL_TOKEN"


class ControlAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine's control is, and its token: itself, or the file that has it."""

    url: str
    """The engine's base."""
    token: str | None
    token_file: str | None
    lease_s: float
    step_budget: bool = False


class _Error(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Error


class VllmControl:
    """One engine's control. Nothing raises: a fault is an answer, too."""

    def __init__(
        self, access: ControlAccess, *, send: Callable[..., Awaitable[FetchResponse]] = fetch
    ) -> None:
        self._access, self._send = access, send
        self._token = access.token

    async def ask(
        self, body: Mapping[str, Any] | None, timeout_s: float
    ) -> ControlDocument | ControlFault:
        """The document now (None), or after what the body asks for."""
        token = self._token or self._read()
        if isinstance(token, ControlFault):
            return token
        headers = [("authorization", f"Bearer {token}")]
        if body is not None:
            headers.append(("content-type", "application/json"))
        try:
            answer = await self._send(
                self._access.url + _PATH,
                method="GET" if body is None else "POST",
                headers=headers,
                body=b"" if body is None else msgspec.json.encode(body),
                timeout_s=timeout_s,
            )
        except FetchError as error:
            kind: FaultKind = "timeout" if error.kind == "timeout" else "unreachable"
            return ControlFault(kind, error.message)
        if answer.status == 200:
            try:
                return msgspec.json.decode(answer.body, type=ControlDocument)
            except msgspec.DecodeError as error:
                return ControlFault("absent", f"answered something else: {error}")
        if answer.status in (401, 403):
            # It may have been changed: a file is read again for the next request.
            self._token = self._access.token
        return _fault(answer)

    def _read(self) -> str | ControlFault:
        path = Path(self._access.token_file or "")
        try:
            token = path.read_text("ascii").strip()
        except OSError as error:
            return ControlFault("wrong_token", f"token_file {path}: {error.strerror}")
        except UnicodeDecodeError:
            return ControlFault("wrong_token", f"token_file {path} has no token in it")
        if not token or not token.isprintable() or " " in token:
            return ControlFault("wrong_token", f"token_file {path} has no token in it")
        self._token = token
        return token


def _fault(answer: FetchResponse) -> ControlFault:
    try:
        said = msgspec.json.decode(answer.body, type=_Refusal).error.message[:_SAID_MAX]
    except msgspec.DecodeError:
        said = ""
    status = answer.status
    if status in (401, 403):
        return ControlFault("wrong_token", f"answered {status}: not the token it was started with")
    if status == 400:
        return ControlFault("refused", f"answered 400: {said or 'no reason'}")
    if status >= 500:
        return ControlFault("engine_error", f"answered {status}: {said or 'no reason'}")
    return ControlFault("absent", f"answered {status}: is the plugin in it? {_HINT}")
