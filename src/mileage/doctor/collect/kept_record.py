"""What is kept of an engine's pages for a colleague: some of them, without secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.redact import Redactor

__all__ = ["kept_record"]

PAGES_MAX: Final = 24
"""Evenly over the window: its first and last page tell the rates, those between them the means."""


def kept_record(record: EngineRecord, redactor: Redactor, *, bytes_max: int) -> EngineRecord:
    """The record without what a colleague must not see, and no larger than `bytes_max`.

    Pages are the first, the last, and some between them; where not even one fits there is none, and
    `missing` says so. Answers are without secrets already, and lose addresses and people here.
    """
    answers = {path: _answer(body, redactor) for path, body in record.answers.items()}
    room = bytes_max - sum(len(body.encode()) for body in answers.values())
    if room < 0:
        answers, room = {}, bytes_max
    pages = _redacted(_fitting(record.pages, room), redactor)
    missing = {path: redactor.text(why) for path, why in record.missing.items()}
    if record.pages and not pages:
        missing[record.pages[0].path] = "its pages are too large to be kept"
    return EngineRecord(
        url=redactor.text(record.url), pages=pages, answers=answers, missing=missing
    )


def _answer(body: str, redactor: Redactor) -> str:
    try:
        return msgspec.json.encode(redactor.document(msgspec.json.decode(body))).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return redactor.text(body)


def _fitting(pages: Sequence[RecordedPage], room: int) -> Sequence[RecordedPage]:
    """As many as fit, at most `PAGES_MAX`, evenly spaced."""
    for count in range(min(len(pages), PAGES_MAX), 0, -1):
        last = len(pages) - 1
        places = (
            [round(n * last / max(1, count - 1)) for n in range(count)] if count > 1 else [last]
        )
        chosen = [pages[place] for place in places]
        if sum(len(page.text.encode()) for page in chosen) <= room:
            return chosen
    return ()


def _redacted(pages: Sequence[RecordedPage], redactor: Redactor) -> tuple[RecordedPage, ...]:
    """A line's name and labels are the same on every page, and are looked through once."""
    known: dict[str, str] = {}

    def clean(line: str) -> str:
        name, space, value = line.rpartition(" ")
        if not space or not _is_number(value):
            name, space, value = line, "", ""
        if name not in known:
            known[name] = redactor.text(name)
        return f"{known[name]}{space}{value}"

    return tuple(
        msgspec.structs.replace(page, text="\n".join(map(clean, page.text.split("\n"))))
        for page in pages
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
