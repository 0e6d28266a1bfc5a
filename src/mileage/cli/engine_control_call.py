"""Calls to /mileage/control of a vLLM with the plugin: its token, and what it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.config import check_token
from mileage.policy.engine_knobs import ControlDocument
from mileage.wire.fetch import fetch

__all__ = ["ask_control", "control_token"]

_PATH: Final = "/mileage/control"
_TIMEOUT_S: Final = 150.0
_VARIABLE: Final = "MILEAGE_CONTROL_TOKEN"
_FILE_VARIABLE: Final = "MILEAGE_CONTROL_TOKEN_FILE"
_NOT_FOUND: Final = (
    "is the plugin in it? Start vLLM with VLLM_PLUGINS=mileage and MILEAGE_CONTROL_TOKEN"
)


class _Error(msgspec.Struct):
    message: str
    param: str | None = None


class _Refusal(msgspec.Struct):
    error: _Error


def control_token(path: Path | None) -> str:
    """The token, out of the file or the environment. Raises ConfigError."""
    if path is None and (token := os.environ.get(_VARIABLE)) is not None:
        return check_token(_VARIABLE, token)
    name = "--token-file"
    if path is None:
        name, file = _FILE_VARIABLE, os.environ.get(_FILE_VARIABLE)
        if file is None:
            raise ConfigError(_VARIABLE, None, "the token that vLLM was started with")
        path = Path(file)
    try:
        return check_token(name, path.read_text("ascii").strip())
    except OSError as error:
        expected = f"a readable file with the control's token ({error.strerror})"
    except UnicodeDecodeError:
        expected = "a file with the control's token"
    raise ConfigError(name, str(path), expected)


async def ask_control(
    url: str, token: str, body: Mapping[str, Any] | None = None
) -> ControlDocument:
    """Ask for the document, or for what the body says.

    Raises ConfigError for a value that the engine refuses, MileageError for another answer, and
    FetchError where it cannot be asked.
    """
    headers = [("authorization", f"Bearer {token}")]
    if body is not None:
        headers.append(("content-type", "application/json"))
    answer = await fetch(
        f"{url.rstrip('/')}{_PATH}",
        method="GET" if body is None else "POST",
        headers=headers,
        body=b"" if body is None else msgspec.json.encode(body),
        timeout_s=_TIMEOUT_S,
    )
    if answer.status == 200:
        try:
            return msgspec.json.decode(answer.body, type=ControlDocument)
        except msgspec.DecodeError as error:
            raise MileageError(f"{url} answered something else: {error}") from None
    try:
        refusal = msgspec.json.decode(answer.body, type=_Refusal).error
    except msgspec.DecodeError:
        raise MileageError(f"{url} answered {answer.status}: {_NOT_FOUND}") from None
    if answer.status == 400:
        key, _, told = refusal.message.partition(": ")
        value, _, expected = told.removeprefix("got ").partition(", expected ")
        raise ConfigError(refusal.param or key, value, expected)
    raise MileageError(f"{url} answered {answer.status}: {refusal.message}")
