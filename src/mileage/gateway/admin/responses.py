"""Responses of the admin plane: JSON, and errors in one form."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

__all__ = ["error", "json"]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    421: "invalid_request_error",
    422: "invalid_request_error",
    503: "overloaded_error",
}


def json(document: Any, status: int = 200) -> Response:
    """A JSON document; None and what is not finite become null."""
    return Response(msgspec.json.encode(document), status, media_type="application/json")


def error(
    status: int,
    message: str,
    *,
    code: str,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """An error as `{"error": {message, type, param, code}}`; `param` names the bad input."""
    content = {
        "error": {
            "message": message,
            "type": _TYPES.get(status, "internal_error"),
            "param": param,
            "code": code,
        }
    }
    return Response(
        msgspec.json.encode(content), status, headers=headers, media_type="application/json"
    )
