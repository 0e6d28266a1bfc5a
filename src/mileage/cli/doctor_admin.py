"""The admin plane of a Mileage gateway that is to be watched: found, or as it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import psutil

from mileage.cli.bench_admin import admin_token
from mileage.cli.bench_target import url_of
from mileage.cli.doctor_arguments import DoctorArguments
from mileage.core.errors import ConfigError, EngineError
from mileage.scrape.server_use_process import find_server
from mileage.wire.fetch import fetch
from mileage.wire.url import origin

__all__ = ["AdminPlane", "admin_plane"]

_USUAL_URL: Final = "http://127.0.0.1:8081"
_TIMEOUT_S: Final = 3.0
_OWNER: Final = "mileage"
_LOOPBACK: Final = ("127.0.0.1", "0.0.0.0", "::", "::1")  # noqa: S104 -- compared with, not bound


class AdminPlane(msgspec.Struct, frozen=True):
    """Where it is; None where there is none, and why, where one is missed."""

    url: str | None = None
    token: str | None = None
    missing: str | None = None


def admin_plane(
    arguments: DoctorArguments, url: str, authorization: str | None = None
) -> AdminPlane:
    """Of the gateway at `url`: as given, else that of this machine's gateway. `authorization`: the
    value of that header for `url` itself.

    Raises:
        ConfigError: the address or the token's file that was given cannot be used.
    """
    if arguments.admin_url is not None:
        given = url_of(arguments.admin_url, "--admin-url")
        return AdminPlane(given, admin_token(None, arguments.admin_token_file))
    return asyncio.run(_found(arguments, url, authorization))


async def _found(arguments: DoctorArguments, url: str, authorization: str | None) -> AdminPlane:
    models = await _asked(f"{url}/v1/models", authorization)
    rows = models.get("data") if isinstance(models, dict) else None
    if not isinstance(rows, list) or not any(
        isinstance(row, dict) and row.get("owned_by") == _OWNER for row in rows
    ):
        return AdminPlane()
    try:
        token = admin_token(None, arguments.admin_token_file)
    except ConfigError:
        if arguments.admin_token_file is not None:
            raise
        return AdminPlane(missing="its admin plane has a token: --admin-token-file")
    for candidate in _candidates(url):
        bearer = None if token is None else f"Bearer {token}"
        status = await _asked(f"{candidate}/api/v1/status", bearer)
        if isinstance(status, dict) and "replicas" in status:
            return AdminPlane(candidate, token)
    return AdminPlane(missing="its admin plane was not found, and it knows most: --admin-url")


def _candidates(url: str) -> Iterator[str]:
    """Where the gateway's own processes listen beside `url`, then where the plane usually is."""
    _, _, port = origin(url)
    seen = {port}
    try:
        # By its port alone: the engines of a gateway may be servers of their own.
        for process in find_server(url, (url,)).engine:
            for connection in process.net_connections("tcp"):
                at = connection.laddr
                if connection.status == psutil.CONN_LISTEN and at.port not in seen:
                    seen.add(at.port)
                    if at.ip in _LOOPBACK:
                        yield f"http://127.0.0.1:{at.port}"
    except (EngineError, psutil.Error, OSError):
        pass  # it is on another machine, or another user's
    yield _USUAL_URL


async def _asked(url: str, authorization: str | None) -> Any:
    """The JSON that is answered; None where there is none."""
    headers = () if authorization is None else (("authorization", authorization),)
    try:
        answer = await fetch(url, headers=headers, timeout_s=_TIMEOUT_S)
        return msgspec.json.decode(answer.body) if answer.status == 200 else None
    except (EngineError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
