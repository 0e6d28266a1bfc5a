"""EngineRecord: all that was read of one engine over HTTP, as it was answered."""

from __future__ import annotations

import msgspec

__all__ = ["EngineRecord", "RecordedPage"]


class RecordedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was read again and again; `at_s` is monotonic, `at_utc_s` in Unix time."""

    at_s: float
    at_utc_s: float
    path: str
    text: str


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine answered. Plain enough to be written as JSON, sent and read elsewhere.

    `pages`: of its metrics, in the order in which they were asked for; `answers`: path -> the body
    of a page that was asked for once, without its secrets; `missing`: path -> why there is no
    answer.
    """

    url: str
    pages: tuple[RecordedPage, ...] = ()
    answers: dict[str, str] = {}
    missing: dict[str, str] = {}
