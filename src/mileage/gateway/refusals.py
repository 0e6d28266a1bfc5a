"""Refusals in the forms that clients parse: OpenAI's error object, and Anthropic's."""

from __future__ import annotations

import math
import re

import msgspec

from mileage.core.actions import Reject, RejectReason
from mileage.core.events import FailureKind
from mileage.core.request import Endpoint
from mileage.gateway.answer_head import JSON_LINES

__all__ = [
    "Refusal",
    "engine_error",
    "engine_message",
    "error_body",
    "error_event",
    "rejection",
]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    417: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    501: "not_implemented_error",
    503: "overloaded_error",
    504: "timeout_error",
}

_TENANT_LIMITS: dict[RejectReason, str] = {
    "rate_limited": "rate_limit_exceeded",
    "concurrency_limited": "concurrency_limit_exceeded",
    "budget_exhausted": "insufficient_quota",
}
"""The reasons that are about one tenant, and the codes that clients know them by."""

_encode = msgspec.json.Encoder().encode


class Refusal(Exception):  # noqa: N818 -- an answer to the client, not an error of ours
    """A request that is answered with an error; `param` names the field of the body at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after_s = retry_after_s
        super().__init__(message)

    def head(self) -> bytes:
        """Header lines of the answer."""
        if self.retry_after_s is None:
            return JSON_LINES
        return b"%bretry-after: %d\r\n" % (JSON_LINES, max(1, math.ceil(self.retry_after_s)))

    def body(self, endpoint: Endpoint | None) -> bytes:
        """Body of the answer, in the form of the endpoint's API."""
        return error_body(
            self.status, self.message, param=self.param, code=self.code, endpoint=endpoint
        )


def rejection(action: Reject, model: str, failure: tuple[FailureKind, str] | None) -> Refusal:
    """What the client is told of the controller's Reject; `failure` is that of the last attempt."""
    reason, retry_after_s = action.reason, action.retry_after_s
    if reason == "model_not_found":
        message = f"the model '{model}' does not exist; GET /v1/models lists those that do"
        return Refusal(404, message, param="model", code=reason)
    if reason == "endpoint_not_supported":
        return Refusal(501, f"no engine that serves '{model}' has this endpoint", code=reason)
    if reason in _TENANT_LIMITS:
        message = action.detail or f"the tenant's limit is reached ({reason})"
        return Refusal(429, message, code=_TENANT_LIMITS[reason], retry_after_s=retry_after_s)
    if reason == "load_failed":
        detail = _DIRECTORIES.sub("", action.detail or "")  # of our machines: nothing for clients
        message = f"the model '{model}' could not be loaded: {detail}"
        return Refusal(503, message, code=reason, retry_after_s=retry_after_s)
    if reason in ("queue_full", "deadline"):
        message = action.detail or f"'{model}' has more requests than it can serve in time"
        return Refusal(503, message, code=reason, retry_after_s=retry_after_s)
    if reason == "no_replica" or failure is None:
        message = f"no replica that serves '{model}' is up"
        return Refusal(503, message, code=reason, retry_after_s=retry_after_s)
    kind, message = failure
    if reason == "busy":
        return Refusal(503, message, code=reason, retry_after_s=retry_after_s)
    status = 504 if kind == "timeout" else 502
    return Refusal(status, message, code=reason, retry_after_s=retry_after_s)


def error_body(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    endpoint: Endpoint | None = None,
) -> bytes:
    """The JSON body of an error answer, in the form of the endpoint's API."""
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if endpoint == "messages":
        return _encode({"type": "error", "error": {"type": kind, "message": message}})
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_event(message: str, code: str, endpoint: Endpoint) -> bytes:
    """What ends a stream that broke after its first byte: an event that the client's SDK raises."""
    if endpoint == "messages":
        error = {"type": "error", "error": {"type": "api_error", "message": message}}
        return b"event: error\ndata: %b\n\n" % _encode(error)
    if endpoint == "responses":
        return b"event: error\ndata: %b\n\n" % _encode(
            {"type": "error", "code": code, "message": message, "param": None}
        )
    error_object = {"message": message, "type": "api_error", "param": None, "code": code}
    return b"data: %b\n\ndata: [DONE]\n\n" % _encode({"error": error_object})


_DIRECTORIES = re.compile(r"(?<![\w/:.~])~?(?:/[\w.@+-]+)*/(?=[\w.@+-])")
"""Those before the last name of a path; none of a URL."""
_ABSENT = msgspec.Raw()


class _EngineError(msgspec.Struct):
    error: msgspec.Raw = _ABSENT
    message: str | None = None
    detail: msgspec.Raw = _ABSENT


_engine_error = msgspec.json.Decoder(_EngineError)
_NOT_READABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_MESSAGE_CHARS_MAX = 500


def engine_message(body: bytes) -> str | None:
    """What an engine's error body says, for people; None where it says nothing readable."""
    try:
        found = _engine_error.decode(body)
        if bytes(found.error):
            said: object = msgspec.json.decode(found.error)
            said = said.get("message") if isinstance(said, dict) else said
        elif found.message is not None:
            said = found.message
        else:
            said = msgspec.json.decode(found.detail) if bytes(found.detail) else None
    except _NOT_READABLE:
        return None
    return None if said is None else str(said)[:_MESSAGE_CHARS_MAX]


def engine_error(status: int, body: bytes, endpoint: Endpoint) -> bytes:
    """An engine's error answer in the API's form: as it came where it has it, else wrapped."""
    try:
        if bytes(_engine_error.decode(body).error)[:1] == b"{":
            return body
    except _NOT_READABLE:
        pass
    message = engine_message(body) or f"the engine answered {status} without an explanation"
    return error_body(status, message, endpoint=endpoint)
