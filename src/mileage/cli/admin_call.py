"""Calls to the admin plane of a running gateway: its token, and what it answers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import typer

from mileage.cli.config import state_directory
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.config import check_token
from mileage.wire.fetch import FetchResponse, fetch

__all__ = ["Admin", "AdminError", "TokenFile", "admin_error", "call_admin"]

Admin: TypeAlias = Annotated[str, typer.Option(help="The gateway's admin plane.")]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="File with the admin token. Without it: MILEAGE_ADMIN_TOKEN, else the file that "
        "the gateway of this user has made."
    ),
]

_TIMEOUT_S: Final = 30.0
_REFUSED: Final = 401
_TOKEN_VARIABLE: Final = "MILEAGE_ADMIN_TOKEN"  # noqa: S105 -- the name of it


class AdminError(msgspec.Struct):
    """What the admin plane says is wrong."""

    message: str
    code: str
    param: str | None = None


class _Refusal(msgspec.Struct):
    error: AdminError


def call_admin(
    admin: str,
    path: str,
    token_file: Path | None,
    *,
    method: Literal["GET", "POST"] = "POST",
    body: bytes = b"",
) -> FetchResponse:
    """Ask the admin plane at `admin`. Raises FetchError where it cannot be asked, ConfigError
    where there is no token, and MileageError where the plane takes another one."""
    token, source = _token(token_file)
    headers = [("authorization", f"Bearer {token}")]
    if body:
        headers.append(("content-type", "application/json"))
    answer = asyncio.run(
        fetch(
            f"{admin.rstrip('/')}{path}",
            method=method,
            headers=headers,
            body=body,
            timeout_s=_TIMEOUT_S,
        )
    )
    if answer.status == _REFUSED:
        raise MileageError(
            f"{admin} takes another admin token than that of {source} (401): give the one of that "
            f"gateway by --token-file or {_TOKEN_VARIABLE}"
        )
    return answer


def admin_error(answer: FetchResponse) -> AdminError:
    """What an answer that is no success says."""
    try:
        return msgspec.json.decode(answer.body, type=_Refusal).error
    except msgspec.DecodeError:
        return AdminError("is this a Mileage admin plane?", "unknown")


def _token(path: Path | None) -> tuple[str, str]:
    """The token, and where it is from."""
    if path is None and (token := os.environ.get(_TOKEN_VARIABLE)) is not None:
        return check_token(_TOKEN_VARIABLE, token), _TOKEN_VARIABLE
    given, path = path is not None, path or state_directory() / "admin-token"
    try:
        return check_token("--token-file", path.read_text("ascii").strip()), str(path)
    except FileNotFoundError as error:
        expected = f"a readable file with the admin token ({error.strerror})"
        if not given:
            expected += f": this user has started no gateway here; or set {_TOKEN_VARIABLE}"
    except OSError as error:
        expected = f"a readable file with the admin token ({error.strerror})"
    except UnicodeDecodeError:
        expected = "a file with the admin token"
    raise ConfigError("--token-file", str(path), expected)
